#!/usr/bin/env python3
"""Is what plimsoll reads of a GPU what a load of known size takes? Two processes of the reference engine on the first GPU.

    device_load.py --plimsoll FILE --engine FILE [--device cuda|hip] OUT_DIR

The first process takes nothing: its bytes are the driver's context. The second takes weights and a pool, then spikes of 30 ms. One recording spans both;
each figure must be the truth within 1 % or 4 MiB. Writes OUT_DIR/load-session.jsonl and OUT_DIR/load-report.json.

Exit: 0 it agrees, 1 it does not, 3 there is nothing to test with: the engine cannot take memory of the device.
"""
import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

MIB = 1 << 20
WEIGHTS, POOL, SPIKE = 512, 256, 128
SPIKES = 12
PATIENCE_S = 60


class Engine:
    def __init__(self, program, device, log, weights, pool, spike):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = open(log, "w", encoding="utf-8")
        words = [program, "serve", "--model", "m", "--port", str(self.port), "--device", device, "--weights", f"{weights}MiB",
                 "--kv-pool", f"{pool}MiB", "--activation", f"{spike}MiB", "--activation-ms", "30"]
        self.process = subprocess.Popen(words, stdout=self.log, stderr=subprocess.STDOUT)
        self.pid = self.process.pid

    def get(self, path, data=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return reply.read()

    def wait(self):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                return self.get("/health")
            except OSError:
                time.sleep(0.05)
        print("the reference engine does not serve: see", self.log.name)
        return None

    def end(self):
        self.process.terminate()
        self.process.wait()


def samples_of(path):
    with open(path, encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    start = documents[0]["wall_start_ns"]
    return [(start + d["at_ns"], d) for d in documents if d.get("device") == 0 and "used_bytes" in d]


def between(samples, begin, end):
    return [s for at, s in samples if begin <= at <= end]


def held(samples, pid):
    """Bytes of a process, by its newest listing."""
    told = [p["used_bytes"] for s in samples for p in s.get("processes") or [] if p["pid"] == pid and p["used_bytes"]]
    return told[-1] / MIB if told else None


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def highest(sample):
    return max(sample["used_bytes"], sample.get("high_bytes") or 0) / MIB


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("out")
    args = parser.parse_args()
    session = os.path.join(args.out, "load-session.jsonl")
    recording = subprocess.Popen([args.plimsoll, "--quiet", "record", "-o", session, "--interval", "100ms"])
    log = lambda name: os.path.join(args.out, name)
    marks, engines = {}, []

    def mark(name):
        marks[name] = time.time_ns()

    try:
        time.sleep(1.5)
        mark("idle")
        empty = Engine(args.engine, args.device, log("engine-empty.log"), 0, 0, 0)
        engines.append(empty)
        if empty.wait() is None:
            return 3
        # Processes are listed every second.
        time.sleep(2.5)
        mark("empty")
        full = Engine(args.engine, args.device, log("engine-full.log"), WEIGHTS, POOL, SPIKE)
        engines.append(full)
        if full.wait() is None:
            return 3
        mark("ready")
        time.sleep(2.5)
        mark("full")
        for _ in range(SPIKES):
            full.get("/v1/completions", json.dumps({"model": "m", "prompt": "a", "max_tokens": 1}).encode())
            time.sleep(0.11)
        mark("spiked")
        time.sleep(0.5)
    finally:
        for engine in engines:
            engine.end()
        mark("ended")
        time.sleep(1.5)
        recording.send_signal(signal.SIGINT)
        recording.wait()
    samples = samples_of(session)
    empty_mib = held(between(samples, marks["idle"], marks["empty"]), empty.pid)
    full_mib = held(between(samples, marks["ready"], marks["full"]), full.pid)
    used = lambda begin, end: median([s["used_bytes"] / MIB for s in between(samples, begin, end)])
    idle = used(0, marks["idle"])
    with_empty = used(marks["empty"] - 10**9, marks["empty"])
    with_full = used(marks["full"] - 10**9, marks["full"])
    after = used(marks["ended"] + 5 * 10**8, 1 << 63)
    peak = max((highest(s) for s in between(samples, marks["full"], marks["spiked"] + 2 * 10**8)), default=None)
    less = lambda a, b: None if a is None or b is None else a - b
    # What is told, what is true.
    checks = {
        "held by the process, less its context": (less(full_mib, empty_mib), WEIGHTS + POOL),
        "in use by the second process, less its context": (less(less(with_full, with_empty), less(with_empty, idle)), WEIGHTS + POOL),
        "a spike of 30 ms": (less(peak, with_full), SPIKE),
        "in use afterwards, more than before": (less(after, idle), 0),
    }
    report = {"device": args.device, "context_mib": empty_mib, "checks": []}
    for name, (told, truth) in checks.items():
        agrees = told is not None and abs(told - truth) <= max(4, truth * 0.01)
        report["checks"].append({"figure": name, "measured_mib": told, "true_mib": truth, "agrees": agrees})
        print(f"load: {name:<46} {told} MiB, {truth} MiB true: {'agrees' if agrees else 'DIFFERS'}")
    print(f"load: the context of a process is {empty_mib} MiB")
    with open(os.path.join(args.out, "load-report.json"), "w", encoding="utf-8") as f:
        json.dump(report, f, indent=2)
        f.write("\n")
    return 0 if all(c["agrees"] for c in report["checks"]) else 1


sys.exit(main())
