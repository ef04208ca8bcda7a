"""A convolutional network on 1,797 handwritten digits with PyTorch; two lines make it a job that can be
stopped, moved off its device and started again without losing a step (marked below).

    python3 torch_digits.py [EPOCHS]
"""
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

import tidepool.torch

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 200


def loader(images, labels, epoch, size=64):
    """The batches of one epoch, in an order that depends on its number alone."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    for rows in order.split(size):
        yield images[rows], labels[rows]


data = load_digits()
device = "cuda" if torch.cuda.is_available() else "cpu"
all_images = torch.tensor(data.data / 16, dtype=torch.float32).view(-1, 1, 8, 8).to(device)
all_labels = torch.tensor(data.target).to(device)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 16, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

run = tidepool.torch.attach(model, optimizer, checkpoint="torch_digits.pt")  # the first line

for epoch in range(run.epoch, EPOCHS):
    for images, labels in run.steps(loader(all_images, all_labels, epoch)):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss=loss)  # the second line
    if epoch % 10 == 9:
        print("epoch %d  loss %.4f" % (epoch + 1, loss.item()), flush=True)

run.save()
with torch.no_grad():
    right = (model(all_images).argmax(1) == all_labels).float().mean().item()
print("right %.1f %%" % (100 * right))
