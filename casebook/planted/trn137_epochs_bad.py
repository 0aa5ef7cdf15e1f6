"""A student that learns from pairs of labelled and unlabelled pictures."""

import torch
from torch import nn
from torch.utils.data import DataLoader


def fit(student, labelled, unlabelled, epochs):
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    both = zip(DataLoader(labelled, batch_size=32, shuffle=True), DataLoader(unlabelled, batch_size=32, shuffle=True))
    for epoch in range(epochs):
        total = 0.0
        for (pictures, classes), more in both:
            with torch.no_grad():
                guesses = student(more).softmax(-1)
            loss = nn.functional.cross_entropy(student(pictures), classes)
            loss = loss + nn.functional.cross_entropy(student(more + 0.1 * torch.randn_like(more)), guesses)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(epoch, total)
