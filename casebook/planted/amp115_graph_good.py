"""Graph network with half-precision message passing."""

import torch
from torch import Tensor, nn


class MessageLayer(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, h: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        m = self.msg(torch.cat([h[src], h[dst]], dim=-1))
        agg = torch.zeros(h.shape, dtype=torch.float32, device=h.device).index_add_(0, dst, m.float())
        return self.norm(h + agg)


class GNN(nn.Module):
    def __init__(self, in_dim: int, dim: int, out: int, layers: int = 4) -> None:
        super().__init__()
        self.inp = nn.Linear(in_dim, dim)
        self.layers = nn.ModuleList([MessageLayer(dim) for _ in range(layers)])
        self.out = nn.Linear(dim, out)

    @torch.autocast(device_type="cuda", dtype=torch.bfloat16)
    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h, edges[0], edges[1])
        return self.out(h)


def fit(graphs, epochs: int = 200) -> GNN:
    gnn = GNN(16, 128, 1).to("cuda")
    optimiser = torch.optim.Adam(gnn.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for x, edges, y in graphs:
            optimiser.zero_grad(set_to_none=True)
            out = gnn(x.cuda(), edges.cuda())
            loss = (out.float() - y.cuda()).abs().mean()
            loss.backward()
            optimiser.step()
        if epoch % 10 == 0:
            print(epoch, loss.item())
    return gnn
