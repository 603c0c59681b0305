#!/usr/bin/env python3
"""Are the transformers probe's figures those of the model's shapes, and is what plimsoll reads of that process what torch holds?

    acceptance.py [--device cuda:0|cpu] [--python PYTHON] [--plimsoll FILE] [--smi FILE] OUT_DIR

Builds a Llama of random weights from a configuration, so nothing is downloaded, and keeps it in memory while it is looked at from outside: on a GPU by
`plimsoll record` and nvidia-smi, for the process' own pid; on the CPU by the kernel. Writes OUT_DIR/probe.json and OUT_DIR/probe-report.json.

Exit: 0 it agrees, 1 it does not, 3 there is nothing to test with: no torch, no transformers, no GPU that torch sees.
"""
import argparse
import json
import os
import subprocess
import sys

MIB = 1 << 20
PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "transformers_memory.py")
PROMPT, GENERATED, BATCH, SIZE = 512, 64, 4, 2
RECORD_S = 3
HERE = "import importlib.util as u; print(int(all(u.find_spec(n) for n in ('torch', 'transformers'))))"
SEES = "import torch; print(int(torch.cuda.is_available()))"


def config(cpu):
    hidden, layers, feed, vocab = (512, 4, 1024, 4096) if cpu else (4096, 8, 11008, 32000)
    return {
        "model_type": "llama", "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": feed, "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64, "num_key_value_heads": hidden // 256, "head_dim": 64, "max_position_embeddings": 4096,
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }


def parameters(c):
    """Of a Llama without biases and with untied embeddings."""
    hidden, kv = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"]
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * c["intermediate_size"] + 2 * hidden
    return 2 * c["vocab_size"] * hidden + c["num_hidden_layers"] * layer + hidden


def answer(python, question):
    try:
        done = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip().endswith("1")


def nothing(why):
    print("transformers probe: not run: %s" % why)
    sys.exit(3)


def pid_bytes(plimsoll, pid, out):
    """What plimsoll reads of the process, over all GPUs."""
    path = os.path.join(out, "probe-session.jsonl")
    subprocess.run([plimsoll, "--quiet", "record", "-o", path, "--interval", "100ms", "--duration", "%ds" % RECORD_S], check=True)
    latest = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            told = json.loads(line)
            for sample in [told] + [v for v in told.values() if isinstance(v, dict)]:
                for process in sample.get("processes") or []:
                    if isinstance(process, dict) and process.get("pid") == pid and process.get("used_bytes") is not None:
                        latest[sample.get("device")] = process["used_bytes"]
    return sum(latest.values()) if latest else None


def smi_bytes(smi, pid):
    query = [smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    mine = [row[1] for row in rows if row[0] == str(pid) and row[1].isdigit()]
    return sum(int(mib) for mib in mine) * MIB if mine else None


def outside_rss(pid):
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out", metavar="OUT_DIR")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--python", default="python3")
    p.add_argument("--plimsoll", default="plimsoll")
    p.add_argument("--smi", default="nvidia-smi")
    args = p.parse_args()
    cpu = args.device == "cpu"
    if not answer(args.python, HERE):
        nothing("`%s` has no torch and transformers; PROBE_PYTHON names one that has" % args.python)
    if not cpu and not answer(args.python, SEES):
        nothing("torch of `%s` sees no GPU" % args.python)

    os.makedirs(args.out, exist_ok=True)
    told, shape = os.path.join(args.out, "probe.json"), os.path.join(args.out, "probe-config.json")
    c = config(cpu)
    with open(shape, "w", encoding="utf-8") as f:
        json.dump(c, f)
    command = [
        args.python, PROBE, told, "--random-weights", shape, "--device", args.device, "--dtype", "bfloat16", "--prompt-tokens", str(PROMPT),
        "--max-tokens", str(GENERATED), "--batch-size", str(BATCH), "--hold",
    ]
    checks, seen = [], {}

    def check(name, ours, theirs, agrees):
        checks.append({"check": name, "is": ours, "expected": theirs, "agrees": agrees})

    probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        holding = any(line.startswith("plimsoll-probe phase=holding") for line in probe.stdout)
        if holding and cpu:
            seen["rss_bytes"] = outside_rss(probe.pid)
        elif holding:
            seen["plimsoll_bytes"] = pid_bytes(args.plimsoll, probe.pid, args.out)
            seen["smi_bytes"] = smi_bytes(args.smi, probe.pid)
    finally:
        probe.stdin.close()
        code = probe.wait()
    with open(told, encoding="utf-8") as f:
        result = json.load(f)
    if "error" in result or not holding or code:
        print("transformers probe: FAILED: %s" % result.get("error", {}).get("message", "exit code %d" % code))
        sys.exit(1)

    weights = parameters(c) * SIZE
    check("weights are the parameters of the configuration", result["weights"]["parameter_bytes"], weights, result["weights"]["parameter_bytes"] == weights)
    # The last generated token is in no cache.
    cache = 2 * c["num_hidden_layers"] * c["num_key_value_heads"] * c["head_dim"] * SIZE * (PROMPT + GENERATED - 1) * BATCH
    check("the KV cache is that of the configuration", result["kv_cache"]["bytes"], cache, result["kv_cache"]["bytes"] == cache)
    held = result["held"]
    if cpu:
        apart = abs(held["rss_bytes"] - seen["rss_bytes"])
        check("resident memory is what the kernel tells outside", held["rss_bytes"], seen["rss_bytes"], apart <= 4 * MIB)
    else:
        device = result["devices"][0]
        parts = device["loaded_bytes"] + device["kv_cache_bytes"] + device["activation_peak_bytes"]
        check("loaded, KV cache and activations are torch's peak", parts, device["peak_bytes"], parts == device["peak_bytes"])
        difference = device["allocator_difference_bytes"]
        check("the allocator holds the weights and little more", difference, "0 to %d" % (16 * MIB), 0 <= difference <= 16 * MIB)
        reserved, ours = held["reserved_bytes"], seen["plimsoll_bytes"]
        most = reserved + (device["non_torch_bytes"] or 0) + 16 * MIB
        agrees = ours is not None and reserved <= ours <= most
        check("plimsoll's bytes of the pid are what torch reserves, and the context", ours, "%d to %d" % (reserved, most), agrees)
        smi = seen["smi_bytes"]
        agrees = smi is None or ours is not None and abs(smi - ours) <= MIB
        check("plimsoll's bytes of the pid are nvidia-smi's", ours, smi, agrees)

    good = all(c["agrees"] for c in checks)
    with open(os.path.join(args.out, "probe-report.json"), "w", encoding="utf-8") as f:
        json.dump({"device": args.device, "versions": result["versions"], "seen": seen, "checks": checks}, f, indent=1)
        f.write("\n")
    print("transformers probe on %s (torch %s, transformers %s)" % (args.device, result["versions"]["torch"], result["versions"]["transformers"]))
    for c in checks:
        print("  %s: %s, expected %s: %s" % (c["check"], c["is"], c["expected"], "agrees" if c["agrees"] else "DIFFERS"))
    print("  activations %s, %.1f ms a batch, %.1f tokens/s" % (
        result["activation_peak_bytes"], result["latency"]["median_ms"], result["latency"]["tokens_per_second"]))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
