"""One rank of the GPU test, started by nccl_test.py with its environment set. Prints one JSON line per result on rank 0."""

import json
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# What the bus carries of the buffer's bytes, as nccl-tests has it.
BUS = {"allreduce": lambda n: 2 * (n - 1) / n, "allgather": lambda n: (n - 1) / n, "alltoall": lambda n: (n - 1) / n}


def say(**values):
    if RANK == 0:
        print(json.dumps(values), flush=True)


def inputs(rank, elements):
    """Small whole numbers: sums of them are exact in float32, whatever the order."""
    generator = torch.Generator().manual_seed(1000 + rank)
    return torch.randint(-8, 9, (elements,), generator=generator).float()


def run_collective(kind, elements):
    """The tensors of a call, the call, and what the CPU says that its result is. `elements`: of the full buffer."""
    share = elements // WORLD
    if kind == "allreduce":
        data = inputs(RANK, elements).cuda()
        output = data.clone()
        expected = torch.zeros(elements)
        for rank in range(WORLD):
            expected += inputs(rank, elements)
        return output, lambda: dist.all_reduce(output), expected, lambda: output.copy_(data)
    if kind == "allgather":
        data = inputs(RANK, share).cuda()
        output = torch.zeros(share * WORLD, device="cuda")
        expected = torch.cat([inputs(r, share) for r in range(WORLD)])
        return output, lambda: dist.all_gather_into_tensor(output, data), expected, output.zero_
    data = inputs(RANK, share * WORLD).cuda()
    output = torch.zeros(share * WORLD, device="cuda")
    parts = [inputs(r, share * WORLD)[RANK * share:(RANK + 1) * share] for r in range(WORLD)]
    return output, lambda: dist.all_to_all_single(output, data), torch.cat(parts), output.zero_


def wrong_anywhere(output, expected):
    wrong = torch.tensor([int((output.cpu() != expected).sum())], dtype=torch.int64, device="cuda")
    dist.all_reduce(wrong)
    return int(wrong)


def collectives(kinds, sizes, rounds):
    for kind in kinds:
        for size in sizes:
            output, call, expected, reset = run_collective(kind, size // 4)
            reset()
            call()
            torch.cuda.synchronize()
            wrong = wrong_anywhere(output, expected)
            times = []
            for _ in range(rounds):
                torch.cuda.synchronize()
                start = time.perf_counter()
                call()
                torch.cuda.synchronize()
                times.append(time.perf_counter() - start)
            median = statistics.median(times)
            say(collective=kind, bytes=size, wrong=wrong, time_s=median, busbw_bps=8 * size * BUS[kind](WORLD) / median)


class Block(torch.nn.Module):
    """As BlockImpl in runtime/gpt.cc."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.attention_proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.mlp_proj = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, sequence, width = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(batch, sequence, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_proj(mixed.transpose(1, 2).reshape(batch, sequence, width))
        return x + self.mlp_proj(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    """The runtime's GPT-2 over bytes (runtime/gpt.cc): head tied to the embedding."""

    def __init__(self, layers=4, width=256, heads=4, positions=128):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(256, width), torch.nn.Embedding(positions, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = torch.nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                residual = 1 / math.sqrt(2 * layers) if name.endswith("proj.weight") else 1
                torch.nn.init.normal_(parameter, 0, 0.02 * residual)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def train(path, steps, batch=4, sequence=128):
    with open(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    torch.manual_seed(1)  # the same weights on all ranks
    model = Gpt(positions=sequence).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        # Samples depend on the step and the place in the global batch only.
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(0, len(text) - sequence - 1, (batch * WORLD,), generator=generator)
        own = starts[RANK * batch:(RANK + 1) * batch]
        samples = torch.stack([text[s:s + sequence + 1] for s in own]).cuda()
        loss = functional.cross_entropy(model(samples[:, :-1]).flatten(0, 1), samples[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= WORLD
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        losses.append(float(mean) / WORLD)
    # Ranks that got other sums have other weights by now.
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    first = weights.clone()
    dist.broadcast(first, 0)
    differing = (weights != first).sum()
    dist.all_reduce(differing)
    say(train=True, first_loss=losses[0], last_loss=losses[-1], losses=losses, differing=int(differing))


def main():
    plan = json.loads(sys.argv[1])
    torch.cuda.set_device(0)  # all ranks share it
    dist.init_process_group("nccl")
    say(nccl=".".join(map(str, torch.cuda.nccl.version())), torch=torch.__version__, gpu=torch.cuda.get_device_name())
    if plan.get("collectives"):
        collectives(plan["collectives"], plan["bytes"], plan["rounds"])
    if plan.get("train"):
        train(plan["train"], plan["steps"])
    torch.cuda.synchronize()
    time.sleep(plan.get("linger_s", 0))  # the profiler face takes stock every 25 ms
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
