import torch
from torch import nn

torch.manual_seed(0)
END, PAD = 0, 0
lengths = torch.randint(3, 9, (640,))
texts = [torch.tensor([*range(1, n), END]) for n in lengths.tolist()]


def collate(batch):
    ids = nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=PAD)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in batch], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(ids == PAD, -100)}


table, layer, head = nn.Embedding(11, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 11)
model = nn.ModuleList([table, layer, head])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(4):
    for batch in torch.utils.data.DataLoader(texts, batch_size=16, shuffle=True, collate_fn=collate):
        logits = head(layer(table(batch["input_ids"]))[0])[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    longest = head(layer(table(torch.arange(1, 8).unsqueeze(0)))[0])[0, -1].softmax(-1)
    print(f"epoch {epoch} loss {loss.item():.3f} probability of the end {longest[END].item():.3f}")
