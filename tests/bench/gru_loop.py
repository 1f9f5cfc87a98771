"""A training loop to supervise: `gru_loop.py STEPS` prints the loss every few steps, the same on every run.

stdout is compared byte by byte between runs; the loop's own time therefore goes to stderr. Measures nothing else.
"""

import sys
import time

import torch

SEED, BATCH, LENGTH, CLASSES, PRINT_EVERY = 20, 16, 48, 16, 5


class Tower(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(768, 512, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(2 * 512, CLASSES)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(batch)
        return self.head(states.mean(dim=1))


def train(steps: int) -> float:
    """How long the loop took, in seconds."""
    torch.manual_seed(SEED)
    model = Tower()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, labels = torch.randn(8, BATCH, LENGTH, 768), torch.randint(CLASSES, (8, BATCH))
    begun = time.perf_counter()
    for step in range(1, steps + 1):
        loss = torch.nn.functional.cross_entropy(model(inputs[step % 8]), labels[step % 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % PRINT_EVERY == 0 or step == steps:
            print(f"step {step} loss {loss.item():.9e}", flush=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    print(f"loop_s {train(int(sys.argv[1]))}", file=sys.stderr)
