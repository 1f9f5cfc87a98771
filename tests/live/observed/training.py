"""A small training, the same again and again until its stdin ends; after each the checksum of its weights."""

import hashlib
import select
import sys

import torch

STEPS = 200


def train():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        batch = torch.randn(256, 64)
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    digest = hashlib.sha256()
    for weights in model.parameters():
        digest.update(weights.detach().numpy().tobytes())
    return digest.hexdigest()


torch.set_num_threads(1)
print("ready", file=sys.stderr, flush=True)
while True:
    print(train(), flush=True)
    if select.select([sys.stdin], [], [], 0)[0]:
        break
