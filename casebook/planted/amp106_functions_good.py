"""ResNet-50; the two branches share the optimizer step."""

import argparse

import torch
import torch.nn.functional as F
import torchvision
from torch import optim
from torch.cuda.amp import GradScaler, autocast


def train_one_epoch(net, loader, opt, grad_scaler, device, max_norm):
    net.train()
    seen, correct = 0, 0
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        with autocast(enabled=grad_scaler is not None):
            outputs = net(inputs)
            objective = F.cross_entropy(outputs, targets)
        opt.zero_grad()
        if grad_scaler is not None:
            grad_scaler.scale(objective).backward()
            if max_norm > 0:
                grad_scaler.unscale_(opt)
                torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm)
            grad_scaler.step(opt)
            grad_scaler.update()
        else:
            objective.backward()
            if max_norm > 0:
                torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm)
            opt.step()
        seen += targets.size(0)
        correct += (outputs.argmax(1) == targets).sum()
    return correct.item() / seen


@torch.no_grad()
def evaluate(net, loader, device):
    net.eval()
    seen, correct = 0, 0
    for inputs, targets in loader:
        outputs = net(inputs.to(device))
        correct += (outputs.argmax(1) == targets.to(device)).sum()
        seen += targets.size(0)
    return correct.item() / seen


def main(args):
    device = torch.device(args.device)
    net = torchvision.models.resnet50(num_classes=100).to(device)
    opt = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    schedule = optim.lr_scheduler.StepLR(opt, 30)
    grad_scaler = GradScaler() if args.amp else None
    train_loader, test_loader = load_data(args)
    for epoch in range(args.epochs):
        accuracy = train_one_epoch(net, train_loader, opt, grad_scaler, device, args.max_norm)
        schedule.step()
        print(epoch, accuracy, evaluate(net, test_loader, device))


def load_data(args):
    tensor = torchvision.transforms.ToTensor()
    sets = [torchvision.datasets.CIFAR100(args.data, train=t, transform=tensor) for t in (True, False)]
    return [
        torch.utils.data.DataLoader(s, args.batch_size, shuffle=s.train, num_workers=8, pin_memory=True) for s in sets
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--max-norm", type=float, default=0.0)
    parser.add_argument("--amp", action="store_true")
    main(parser.parse_args())
