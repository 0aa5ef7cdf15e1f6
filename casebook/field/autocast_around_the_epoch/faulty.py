"""Preference optimisation: a policy learns to prefer the chosen answer over the rejected one."""

import argparse
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, count, vocabulary=40, length=8):
        g = torch.Generator().manual_seed(9)
        self.prompt = torch.randint(0, vocabulary // 2, (count, length), generator=g)
        self.chosen = (self.prompt + 1) % vocabulary
        self.rejected = torch.randint(vocabulary // 2, vocabulary, (count, length), generator=g)

    def __len__(self):
        return len(self.prompt)

    def __getitem__(self, i):
        return self.prompt[i], self.chosen[i], self.rejected[i]


class Policy(nn.Module):
    def __init__(self, vocabulary=40, width=48):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, vocabulary))

    def log_prob(self, prompt, answer):
        logits = self.layers(self.embedding(prompt))
        return logits.float().log_softmax(-1).gather(-1, answer[..., None]).squeeze(-1).sum(-1)


class PreferenceTrainer:
    def __init__(self, policy, mixed_precision="bf16", beta=0.1, lr=2e-3):
        self.policy, self.beta = policy, beta
        self.optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=lr)
        self.mixed_precision = mixed_precision

    def autocast(self):
        if self.mixed_precision == "bf16":
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return nullcontext()

    def compute_loss(self, prompt, chosen, rejected):
        margin = self.policy.log_prob(prompt, chosen) - self.policy.log_prob(prompt, rejected)
        return -nn.functional.logsigmoid(self.beta * margin).mean()

    def optimize(self, loader):
        with self.autocast():
            for step, batch in enumerate(loader, start=1):
                loss = self.compute_loss(*batch)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                if step % 20 == 0:
                    print(f"{step:5d} loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    policy = Policy()
    policy.embedding.requires_grad_(False)
    PreferenceTrainer(policy).optimize(DataLoader(Pairs(steps * 16), batch_size=16, shuffle=True))


if __name__ == "__main__":
    main()
