import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

ACCUMULATE = 8
CLIP = 5.0


class CharLM(nn.Module):
    def __init__(self, vocab=96, dim=256):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, num_layers=2, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h, _ = self.rnn(self.emb(tokens))
        return self.out(h)


def get_loader():
    ids = torch.randint(0, 96, (4096, 65))
    return DataLoader(TensorDataset(ids), batch_size=16, shuffle=True)


def train(n_epochs=3):
    dev = "cuda"
    lm = CharLM().to(dev)
    optimizer = torch.optim.Adam(lm.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler(dev)
    ce = nn.CrossEntropyLoss()
    loader = get_loader()
    for epoch in range(n_epochs):
        optimizer.zero_grad()
        bar = tqdm(loader, desc=f"epoch {epoch}")
        for idx, (ids,) in enumerate(bar):
            ids = ids.to(dev)
            x, y = ids[:, :-1], ids[:, 1:]
            with torch.autocast(dev, dtype=torch.float16):
                logits = lm(x)
                loss = ce(logits.reshape(-1, logits.size(-1)), y.reshape(-1))
                loss = loss / ACCUMULATE
            scaler.scale(loss).backward()
            if (idx + 1) % ACCUMULATE != 0:
                continue
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(lm.parameters(), CLIP)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


if __name__ == "__main__":
    train()
