"""Loads a TensorRT-LLM engine once, lets it warm up by itself, and writes down its CUDA graphs and its memory.

plimsoll puts this file into a container and runs it there, once for each arm of `plimsoll cuda-graphs`, in a process
of its own. It needs Python 3.9 and TensorRT-LLM with its PyTorch backend; it imports nothing else.

The engine is asked to run in this process (TLLM_WORKER_USE_SINGLE_PROCESS=1, which plimsoll sets), because its
structures can be read only there. Where it runs in workers all the same, that is said, and the log has to tell.
"""

import argparse
import gc
import json
import os
import sys
import time

# So long the host has to read its own figure of a level.
SETTLE_S = 0.5
# Keys of graphs that are written down.
MOST_KEYS = 512

# Where releases keep the model's engine, from the LLM object on.
ENGINES = (
    ("_executor", "engine", "model_engine"),
    ("_executor", "model_engine"),
    ("_executor", "worker", "engine", "model_engine"),
    ("_executor", "engine"),
)
# And in it the captured graphs: from 1.1 on, and before.
GRAPHS = (("cuda_graph_runner", "graphs"), ("_cuda_graphs",))


class Failed(Exception):
    """What stops the probe, with its kind."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def follow(start, names):
    """The attribute at the end of a chain, or None."""
    for name in names:
        start = getattr(start, name, None)
        if start is None:
            return None
    return start


def find_graphs(llm):
    """The dictionary of graphs and the attributes that lead to it."""
    for engine in ENGINES:
        for graphs in GRAPHS:
            found = follow(llm, engine + graphs)
            if isinstance(found, dict):
                return ".".join(("llm",) + engine + graphs), found
    executor = type(getattr(llm, "_executor", None)).__name__
    raise Failed(
        "unreachable",
        "the engine's structures cannot be reached from the LLM object (its executor is a %s): "
        "it runs in worker processes, or this release keeps its graphs elsewhere" % executor,
    )


def draft_lengths(graphs, max_draft_len):
    """The draft length of each graph, with the key that told it."""
    for key, value in graphs.items():
        if isinstance(key, tuple):
            # (batch size, draft length, and more in later releases)
            yield (int(key[1]) if len(key) > 1 else max_draft_len), key
        elif isinstance(value, dict):
            # Batch size, and for each of them the draft lengths.
            for draft_len in value:
                yield int(draft_len), (key, draft_len)
        else:
            # Batch size alone: only the longest draft is captured.
            yield max_draft_len, key


def count(llm, max_draft_len):
    attribute, graphs = find_graphs(llm)
    by_draft_len, keys, total = {}, [], 0
    for draft_len, key in draft_lengths(graphs, max_draft_len):
        total += 1
        by_draft_len[str(draft_len)] = by_draft_len.get(str(draft_len), 0) + 1
        if len(keys) < MOST_KEYS:
            keys.append(repr(key))
    return {"attribute": attribute, "total": total, "by_draft_len": by_draft_len, "keys": keys}


def memory(torch, in_process):
    """Memory now, in bytes; what cannot be known is None."""
    read = dict.fromkeys(("allocated_bytes", "reserved_bytes", "max_allocated_bytes", "device_used_bytes"))
    cuda = torch.cuda
    if not cuda.is_available():
        return read
    cuda.synchronize()
    free, total = cuda.mem_get_info()
    read["device_used_bytes"] = total - free
    # Where the engine is in other processes, this process' allocator knows nothing of it.
    if in_process:
        read["allocated_bytes"] = cuda.memory_allocated()
        read["reserved_bytes"] = cuda.memory_reserved()
        read["max_allocated_bytes"] = cuda.max_memory_allocated()
    return read


def say(moment):
    """Tells the host where we are, and gives it time to look."""
    print("plimsoll-probe: " + moment, flush=True)
    time.sleep(SETTLE_S)


def build(args, tokens):
    """An engine with NGram speculation and CUDA graphs, by the words of the installed release."""
    from tensorrt_llm import LLM

    try:
        from tensorrt_llm.llmapi import KvCacheConfig, NGramDecodingConfig
    except ImportError as e:
        raise Failed("unsupported", "this TensorRT-LLM has no NGram speculation: %s" % e)
    draft = {"max_draft_len": args.max_draft_len, "max_matching_ngram_size": 2}
    if args.max_concurrency is not None:
        draft["max_concurrency"] = args.max_concurrency
    try:
        speculation = NGramDecodingConfig(**draft)
    except (TypeError, ValueError) as e:
        raise Failed("unsupported", "this TensorRT-LLM does not know these settings of NGram speculation: %s" % e)
    settings = {
        "model": args.model_path,
        "max_batch_size": args.max_batch_size,
        "max_seq_len": args.max_seq_len,
        "speculative_config": speculation,
        # One pool of one size in both arms: left to itself it would shrink by what the graphs take, and hide it.
        "kv_cache_config": KvCacheConfig(max_tokens=tokens),
        # NGram speculation does not work with it.
        "disable_overlap_scheduler": True,
    }
    try:
        from tensorrt_llm.llmapi import CudaGraphConfig
    except ImportError:
        # Before 1.0.
        settings.update(use_cuda_graph=True, cuda_graph_max_batch_size=args.max_batch_size)
    else:
        settings["cuda_graph_config"] = CudaGraphConfig(max_batch_size=args.max_batch_size)
    return LLM(**settings)


def kind_of(error):
    """What an error of the engine means."""
    name, text = type(error).__name__, str(error)
    if name == "OutOfMemoryError" or "out of memory" in text.lower() or "insufficient GPU memory" in text:
        return "out_of_memory"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)) or name in ("HFValidationError", "RepositoryNotFoundError"):
        return "model_path"
    if isinstance(error, (TypeError, NotImplementedError)) or name == "ValidationError":
        return "unsupported"
    return "failed"


def probe(args, result):
    try:
        import torch
        import tensorrt_llm
    except ImportError as e:
        raise Failed("missing_module", str(e))
    result["tensorrt_llm"] = str(getattr(tensorrt_llm, "__version__", "unknown"))
    result["torch"] = str(getattr(torch, "__version__", "unknown"))
    # An id of a model hub has one slash at most and is no path.
    if args.model_path.startswith((".", "/")) and not os.path.exists(args.model_path):
        raise Failed("model_path", "there is no `%s` in the container" % args.model_path)
    # Room for a full batch of short requests and for two of the longest.
    tokens = args.max_batch_size * 128 + 2 * args.max_seq_len
    result["kv_cache_max_tokens"] = tokens
    gc.collect()
    before = memory(torch, True)
    say("before")
    llm = build(args, tokens)
    try:
        try:
            result["structure"] = count(llm, args.max_draft_len)
        except Failed as e:
            result["structure_error"] = str(e)
        in_process = result.get("structure") is not None
        if not in_process:
            before.update(allocated_bytes=None, reserved_bytes=None, max_allocated_bytes=None)
        result["memory_before"] = before
        result["memory_after"] = memory(torch, in_process)
        say("after")
    finally:
        shutdown = getattr(llm, "shutdown", None)
        if shutdown is not None:
            shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--max-batch-size", type=int, required=True)
    parser.add_argument("--max-draft-len", type=int, required=True)
    parser.add_argument("--max-seq-len", type=int, required=True)
    parser.add_argument("--max-concurrency", type=int)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    result = {}
    try:
        probe(args, result)
    except Failed as e:
        result["error"] = {"kind": e.kind, "message": str(e)}
    except Exception as e:  # whatever an engine raises is a result too
        message = "%s: %s" % (type(e).__name__, e)
        result["error"] = {"kind": kind_of(e), "message": message[:2000]}
        import traceback

        traceback.print_exc()
    with open(args.output, "w", encoding="utf-8") as file:
        json.dump(result, file)
    sys.exit(1 if "error" in result else 0)


# Engines start workers that import this file again.
if __name__ == "__main__":
    main()
