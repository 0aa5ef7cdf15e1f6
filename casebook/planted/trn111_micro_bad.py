import torch
from torch import nn

ACCUM = 16


class PreTrainer:
    """Trains a language model on a stream of token blocks."""

    def __init__(self, lm: nn.Module, stream, lr: float = 3e-4, steps: int = 10_000):
        self.lm = lm
        self.stream = iter(stream)
        self.steps = steps
        self.optim = torch.optim.AdamW(self.lm.parameters(), lr=lr, weight_decay=0.1)

    def micro_batch(self):
        block = next(self.stream).to("cuda", non_blocking=True)
        return block[:, :-1], block[:, 1:]

    def update(self):
        self.optim = torch.optim.AdamW(self.lm.parameters(), lr=3e-4)
        for micro in range(ACCUM):
            tokens, following = self.micro_batch()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = self.lm(tokens)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
            (loss / ACCUM).backward()
        nn.utils.clip_grad_norm_(self.lm.parameters(), 1.0)
        self.optim.step()
        return loss.detach()

    def fit(self):
        self.lm.train()
        for step in range(self.steps):
            loss = self.update()
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.3f}")
        torch.save(self.lm.state_dict(), "lm.pt")
