import torch
from torch import nn


def make_step(model, optimizer, scaler, loss_fn, clip=None):
    """Returns the function that does one update (in the manner of Ignite)."""

    def _update(engine, batch):
        model.train()
        optimizer.zero_grad()
        x, y = (t.to("cuda", non_blocking=True) for t in batch)
        with torch.autocast("cuda", dtype=torch.float16):
            y_pred = model(x)
            loss = loss_fn(y_pred, y)
        loss.backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return _update


def main(loader):
    from ignite.engine import Engine, Events

    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    trainer = Engine(make_step(model, optimizer, torch.amp.GradScaler("cuda"), nn.CrossEntropyLoss(), clip=1.0))

    @trainer.on(Events.ITERATION_COMPLETED(every=100))
    def report(engine):
        print(engine.state.iteration, engine.state.output)

    trainer.run(loader, max_epochs=5)
