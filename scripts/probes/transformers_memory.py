#!/usr/bin/env python3
"""Measures the memory of one Hugging Face transformers model while it generates, from inside its process.

plimsoll uploads this file into a container and runs it there; it is one file, so that it also runs by hand:

    python3 transformers_memory.py OUT.json --model MODEL [--prompt TEXT] [--max-tokens N] [--batch-size N] [--dtype D] [--per-layer]

Python 3.9 or later with torch and transformers. accelerate is needed for several GPUs only. Nothing goes to the network
unless MODEL is an id that is not in the local cache. A token is taken from HF_TOKEN in the environment and never printed.

OUT.json (bytes are bytes, null is unknown; `notes` says why where it matters):

    schema              1
    measured_by         "cuda_allocator", or "rss" on CPU: process memory read from the kernel, coarser than an allocator's account
    versions            python, torch, transformers, accelerate, cuda, hip
    pid                 process id as this process sees it
    model               name, class, type, dtype, num_parameters, num_layers, quantization, random_weights, devices {module: device} or null
    load                batch_size, prompt ("given" or "random"), prompt_tokens, generated_tokens, total_tokens (per sequence), warmup, iterations
    weights             bytes: parameters and buffers, memory that several share counted once (tied weights);
                        parameter_bytes, buffer_bytes; by_dtype {dtype: bytes}; tied_tensors: names beyond the first for the same memory;
                        offloaded_bytes: not in memory (meta, disk); file_mapped_bytes: pages of the checkpoint itself (CPU), which
                        the kernel counts as page cache;
                        allocator_bytes: what the allocator held after loading less what it held before;
                        allocator_difference_bytes: that less the weights on GPUs
    kv_cache            bytes: the cache's own tensors at the end of generate; held_bytes: the memory behind them, which is more where
                        a tensor is a view; prefill_bytes: after the prompt; tokens: cached per sequence; bytes_per_token: growth per
                        token of one sequence, null where it does not grow; dtype, class, tensors
    devices[]           per GPU, or the one entry "cpu": device, name, uuid, pci_bus_id, total_bytes; weights_bytes, kv_cache_bytes
                        (held), peak_bytes (allocated, or the process' peak), peak_reserved_bytes, reserved_minus_allocated_bytes
                        (of the peaks), activation_peak_bytes (peak less loaded less KV cache), prefill_activation_peak_bytes,
                        loaded_bytes (after loading), used_bytes (whole device at the end), non_torch_bytes (used less reserved: driver,
                        context, libraries, and what other processes hold), non_torch_before_load_bytes, other_processes (count)
    rss                 CPU and GPU alike, of this process: start_bytes, imported_bytes, loaded_bytes, loaded_anon_bytes,
                        loaded_file_bytes, before_bytes (before the iteration that peaked), peak_bytes, peak_by
                        ("high_water_mark", or "sampling": the highest of readings 2 ms apart)
    activation_peak_bytes, prefill_activation_peak_bytes    over all devices
    multi_gpu_overhead_bytes   what this model takes on its GPUs together, less what it would take on one: every context, cache of an
                        allocator and activation buffer but the largest. null on one device
    iterations[]        ms, prefill_ms (null where not timed), peak_bytes, activation_peak_bytes (over all devices)
    latency             median_ms, min_ms, max_ms, mean_ms, tokens_per_second (generated, all sequences, by the median), prefill_ms
    layer_profile       null without --per-layer: operators_by_memory[], operators_by_time[] {name, calls, self_memory_bytes,
                        self_cpu_ms, self_device_ms}; layers[] {name, class, device, parameter_bytes, output_bytes, inner_bytes,
                        peak_bytes}; tokens: generated under the profiler
    notes               sentences

An error leaves {"schema": 1, "error": {"kind", "message", "phase"}} and an exit code: usage 2, import 3, model 4, oom 5, else 1.
"""
import argparse
import contextlib
import gc
import json
import os
import platform
import sys
import threading
import time

SCHEMA = 1
EXITS = {"usage": 2, "import": 3, "model": 4, "gated": 4, "oom": 5}
SAMPLE_S = 0.002
PROFILED_TOKENS = 4
TOP = 20
LONGEST_MESSAGE = 600
WORDS = {"half": "float16", "fp16": "float16", "float": "float32", "fp32": "float32", "bf16": "bfloat16"}

notes = []
state = {"phase": "arguments"}


class Failed(Exception):
    """What the user has to know, with its kind."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def say(phase, **words):
    """One line per phase: plimsoll reads them as they come."""
    state["phase"] = phase
    rest = "".join(" %s=%s" % (k, str(v).replace(" ", "_")) for k, v in words.items())
    print("plimsoll-probe phase=%s%s" % (phase, rest), flush=True)


def note(text):
    if text not in notes:
        notes.append(text)


def without_secrets(text):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN"):
        value = os.environ.get(name)
        if value:
            text = text.replace(value, "[redacted]")
    return text


# --- this process' memory, by the kernel -----------------------------------------------------------------------------------------


def status():
    """VmRSS and its kin from /proc, bytes; empty where there is no /proc."""
    found = {}
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, _, rest = line.partition(":")
                if name in ("VmRSS", "VmHWM", "RssAnon", "RssFile", "RssShmem"):
                    found[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return found


def resident():
    return status().get("VmRSS")


def give_back():
    """What was freed goes back to the kernel, or growth would be hidden in it."""
    gc.collect()
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


class Peak:
    """The highest resident memory while it is open."""

    def __enter__(self):
        self.before = resident()
        self.peak = self.by = None
        self.thread = None
        if self.before is not None and not self.reset():
            self.stop = threading.Event()
            self.peak = self.before
            self.thread = threading.Thread(target=self.sample, daemon=True)
            self.thread.start()
        return self

    @staticmethod
    def reset():
        """Lowers the kernel's high-water mark to now; not every sandbox permits it."""
        try:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
                f.write("5")
        except OSError:
            return False
        now = status()
        return "VmHWM" in now and now["VmHWM"] <= now.get("VmRSS", 0) + (8 << 20)

    def sample(self):
        while not self.stop.is_set():
            self.peak = max(self.peak, resident() or 0)
            time.sleep(SAMPLE_S)

    def __exit__(self, *_):
        if self.before is None:
            return
        if self.thread is None:
            self.peak, self.by = status().get("VmHWM"), "high_water_mark"
        else:
            self.stop.set()
            self.thread.join()
            self.peak, self.by = max(self.peak, resident() or 0), "sampling"


# --- tensors ---------------------------------------------------------------------------------------------------------------------


def span(tensor):
    """First and last address of a tensor's own elements."""
    extent = 0
    if tensor.numel():
        extent = 1 + sum((n - 1) * abs(s) for n, s in zip(tensor.size(), tensor.stride()))
    begin = tensor.data_ptr()
    return begin, begin + extent * tensor.element_size()


def union(spans):
    """Bytes that spans of addresses cover together."""
    total = end = 0
    for begin, stop in sorted(spans):
        total += max(0, stop - max(begin, end))
        end = max(end, stop)
    return total


def plain(tensor):
    """The tensors with memory behind a tensor: quantized and sharded kinds wrap theirs."""
    local = getattr(tensor, "_local_tensor", None)
    if local is not None:
        return plain(local)
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        try:
            return [t for name in flatten()[0] for t in plain(getattr(tensor, name))]
        except Exception:  # a kind of tensor whose protocol this release does not speak
            pass
    return [tensor]


def cache_tensors(cache):
    """Every tensor of a cache: tuples, DynamicCache of any release, static, hybrid and state-space caches, encoder-decoder."""
    import torch

    found, seen = [], set()

    def walk(thing, depth):
        if thing is None or depth > 8 or id(thing) in seen:
            return
        if isinstance(thing, (str, bytes, int, float, bool, type)):
            return
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            found.append(thing)
        elif isinstance(thing, dict):
            for value in list(thing.values()):
                walk(value, depth + 1)
        elif isinstance(thing, (list, tuple)):
            for value in thing:
                walk(value, depth + 1)
        elif hasattr(thing, "__dict__") and not callable(getattr(thing, "to_diff_dict", None)):
            # A configuration has that method and no tensors; a model is no part of a cache.
            if isinstance(thing, torch.nn.Module):
                if depth > 0 and "Cache" not in type(thing).__name__:
                    return
                for value in thing.buffers():
                    walk(value, depth + 1)
            for value in list(vars(thing).values()):
                walk(value, depth + 1)

    walk(cache, 0)
    # Counters and positions that some caches keep are no state of a token.
    return [t for t in found if t.dim() >= 2 and t.device.type != "meta"]


def cache_bytes(cache):
    """The tensors' own bytes and the memory behind them, both per device, and the size of each."""
    own, held, sizes, seen = {}, {}, [], set()
    for outer in cache_tensors(cache):
        for tensor in plain(outer):
            key = (str(tensor.device), tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
            if not tensor.numel() or key in seen:
                continue
            seen.add(key)
            size = tensor.numel() * tensor.element_size()
            sizes.append(size)
            device = key[0]
            own[device] = own.get(device, 0) + size
            storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
            behind = storage.nbytes() if hasattr(storage, "nbytes") else len(storage) * tensor.element_size()
            held.setdefault(device, {})[storage.data_ptr()] = behind
    return own, {device: sum(behind.values()) for device, behind in held.items()}, sizes


def cached_tokens(cache):
    """Tokens per sequence that a cache holds, and whether the cache says so itself."""
    try:
        length = cache.get_seq_length()
        if length is not None:
            return int(length), True
    except Exception:  # tuples and old caches have no such method, some need arguments
        pass
    # Self-attention comes before cross-attention.
    return next((int(t.shape[-2]) for t in cache_tensors(cache) if t.dim() == 4), None), False


def weights_of(model):
    """Where the weights are, memory that several names share counted once."""
    spans, kinds, offloaded, tied, names = {}, {}, 0, 0, set()
    dtypes = {}
    for kind, tensors in (("parameter", model.named_parameters(remove_duplicate=False)), ("buffer", model.named_buffers(remove_duplicate=False))):
        for _, outer in tensors:
            for tensor in plain(outer):
                if tensor.device.type == "meta":
                    if id(tensor) not in names:
                        offloaded += tensor.numel() * tensor.element_size()
                    names.add(id(tensor))
                    continue
                begin, end = span(tensor)
                key = (str(tensor.device), begin, end)
                if end > begin and key in names:
                    tied += 1
                    continue
                names.add(key)
                spans.setdefault(str(tensor.device), []).append((begin, end))
                kinds.setdefault((kind, str(tensor.device)), []).append((begin, end))
                dtypes.setdefault((str(tensor.dtype).replace("torch.", ""), str(tensor.device)), []).append((begin, end))
    by_device = {device: union(s) for device, s in spans.items()}
    by_dtype = {}
    for (dtype, _), s in dtypes.items():
        by_dtype[dtype] = by_dtype.get(dtype, 0) + union(s)
    parameters = sum(union(s) for (kind, _), s in kinds.items() if kind == "parameter")
    total = sum(by_device.values())
    return {
        "bytes": total,
        "parameter_bytes": parameters,
        "buffer_bytes": total - parameters,
        "by_dtype": by_dtype,
        "tied_tensors": tied,
        "offloaded_bytes": offloaded,
        "file_mapped_bytes": file_mapped(spans.get("cpu", [])),
    }, by_device


def file_mapped(spans):
    """Bytes of these spans that are pages of a file; None where the kernel does not show its maps."""
    maps = []
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.split(None, 5)
                if len(words) == 6 and words[5].startswith("/") and not words[5].startswith(("/dev/", "/memfd:", "/SYSV")):
                    begin, end = (int(word, 16) for word in words[0].split("-"))
                    maps.append((begin, end, words[1]))
    except (OSError, ValueError):
        return None
    cut = []
    for begin, end in spans:
        for low, high, mode in maps:
            # A private page that was written to is a copy; that cannot be told from here, so what may be written counts too.
            if begin < high and low < end and "r" in mode:
                cut.append((max(begin, low), min(end, high)))
    return union(cut)


# --- the model -------------------------------------------------------------------------------------------------------------------


def version_tuple(text):
    digits = []
    for part in str(text).split(".")[:3]:
        number = ""
        for c in part:
            if not c.isdigit():
                break
            number += c
        digits.append(int(number or 0))
    return tuple(digits)


def dtype_of(torch, word):
    if word in (None, "auto"):
        return "auto"
    found = getattr(torch, WORDS.get(word, word.replace("torch.", "")), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise Failed("usage", "`--dtype %s` is no floating point type of torch: float32, float16, bfloat16, …" % word)
    return found


def with_dtype(make, transformers, dtype, **more):
    """`dtype` since 4.56, `torch_dtype` before; a fork may have the one and the other's number."""
    first, second = ("dtype", "torch_dtype") if version_tuple(transformers.__version__) >= (4, 56) else ("torch_dtype", "dtype")
    try:
        return make(**{first: dtype}, **more)
    except TypeError as e:
        if first not in str(e):
            raise
        note("this transformers takes no `%s`: `%s` was given" % (first, second))
        return make(**{second: dtype}, **more)


def config_of(transformers, args):
    if not args.random_weights:
        return transformers.AutoConfig.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
    path = args.random_weights
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    try:
        with open(path, encoding="utf-8") as f:
            told = json.load(f)
    except (OSError, ValueError) as e:
        raise Failed("usage", "cannot read the configuration `%s`: %s" % (path, e))
    kind = told.pop("model_type", None) if isinstance(told, dict) else None
    if not kind:
        raise Failed("usage", "`%s` names no model_type" % path)
    return transformers.AutoConfig.for_model(kind, **told)


def classes(transformers, config):
    """Classes to try, in order."""
    names = ["AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForVision2Seq"]
    if getattr(config, "is_encoder_decoder", False):
        names.insert(0, "AutoModelForSeq2SeqLM")
    return [found for found in (getattr(transformers, name, None) for name in names) if found is not None]


def first_that_knows(transformers, config, make):
    refused = None
    for auto in classes(transformers, config):
        try:
            return make(auto)
        except ValueError as e:
            if "nrecognized configuration class" not in str(e):
                raise
            refused = refused or e
    raise refused or Failed("model", "this transformers has no class for models that generate")


def target(torch, args):
    """Where the model goes: None for the CPU, one GPU as `cuda:0`, or "auto" over several."""
    if args.device == "cpu":
        return None
    available = torch.cuda.is_available()
    if args.device != "auto":
        if not available:
            raise Failed("usage", "`--device %s`: torch sees no GPU here" % args.device)
        return args.device if ":" in args.device else args.device + ":0"
    if not available:
        note("torch sees no GPU: figures of activations are the growth of this process' resident memory, coarser than an allocator's account")
        return None
    count = torch.cuda.device_count()
    if count < 2:
        return "cuda:0"
    try:
        import accelerate  # noqa: F401

        return "auto"
    except ImportError:
        note("%d GPUs are here and accelerate is not installed: without it a model is not spread over them, so the first GPU is used" % count)
        return "cuda:0"


def load(torch, transformers, args, where):
    dtype = dtype_of(torch, args.dtype)
    config = config_of(transformers, args)
    more = {"trust_remote_code": args.trust_remote_code}
    if args.attention:
        more["attn_implementation"] = args.attention
    if args.random_weights:
        if dtype == "auto":
            told = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or "float32"
            dtype = dtype_of(torch, str(told).replace("torch.", ""))
        if where == "auto":
            where = "cuda:0"
            note("random weights are not spread over several GPUs: the first is used")
        place = torch.device(where) if where else torch.device("cpu")
        with place if hasattr(place, "__enter__") else contextlib.nullcontext():
            model = first_that_knows(transformers, config, lambda auto: with_dtype(lambda **k: auto.from_config(config, **k), transformers, dtype, **more))
        model = model.to(place)
        # The defaults of a kind of model name an end that a small vocabulary does not have.
        size = getattr(text_config(model), "vocab_size", None)
        settings = getattr(model, "generation_config", None)
        end = getattr(settings, "eos_token_id", None)
        if isinstance(size, int) and isinstance(end, int) and end >= size:
            settings.eos_token_id = None
        return model.eval()
    if where:
        try:
            import accelerate  # noqa: F401

            more["device_map"] = where if where == "auto" else {"": where}
        except ImportError:
            note("accelerate is not installed: the weights go through host memory to the GPU")
    model = first_that_knows(
        transformers, config, lambda auto: with_dtype(lambda **k: auto.from_pretrained(args.model, **k), transformers, dtype, **more)
    )
    if where and where != "auto" and "device_map" not in more:
        model = model.to(where)
    return model.eval()


def text_config(model):
    config = model.config
    get = getattr(config, "get_text_config", None)
    try:
        return get() if get else getattr(config, "text_config", config) or config
    except Exception:  # a model with two decoders does not say which is meant
        return config


def inputs_for(torch, transformers, model, args):
    """Token ids and their mask, one row per sequence, and where they came from."""
    embeddings = model.get_input_embeddings()
    device = embeddings.weight.device if embeddings is not None else next(model.parameters()).device
    if device.type == "meta":
        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    text = args.prompt
    if args.prompt_file:
        try:
            with open(args.prompt_file, encoding="utf-8") as f:
                text = f.read()
        except (OSError, ValueError) as e:
            raise Failed("usage", "cannot read the prompt: %s" % e)
    if text is not None:
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.tokenizer or args.model, trust_remote_code=args.trust_remote_code)
        row = tokenizer(text, return_tensors="pt")["input_ids"][:1]
        if row.shape[-1] == 0:
            raise Failed("usage", "the prompt has no tokens")
        where = "given"
    else:
        size = getattr(text_config(model), "vocab_size", None) or (embeddings.num_embeddings if embeddings is not None else 1000)
        generator = torch.Generator().manual_seed(args.seed)
        row = torch.randint(min(10, size - 1), size, (1, args.prompt_tokens), generator=generator)
        where = "random"
    ids = row.repeat(args.batch_size, 1).to(device)
    longest = getattr(text_config(model), "max_position_embeddings", None)
    if isinstance(longest, int) and ids.shape[-1] + args.max_tokens > longest:
        note("prompt and output together (%d tokens) are more than the model's %d positions" % (ids.shape[-1] + args.max_tokens, longest))
    return ids, torch.ones_like(ids), where


class Generate:
    """Greedy generation of exactly so many tokens, with the cache that it leaves."""

    def __init__(self, torch, model, args):
        self.torch, self.model, self.args = torch, model, args
        self.seen = None
        self.ids, self.mask, self.prompt = args.inputs
        model.register_forward_hook(self.keep)
        pad = getattr(model.config, "pad_token_id", None)
        end = getattr(model.config, "eos_token_id", None)
        end = end[0] if isinstance(end, (list, tuple)) and end else end
        self.pad = next((i for i in (pad, end, 0) if isinstance(i, int) and i >= 0), 0)

    def keep(self, _module, _inputs, output):
        """Releases before 4.36 do not return the cache from generate; every one returns it from forward."""
        for name in ("past_key_values", "cache_params", "state", "mems", "past_buckets_states"):
            held = output.get(name) if isinstance(output, dict) else getattr(output, name, None)
            if held is not None:
                self.seen = held

    def __call__(self, tokens):
        self.seen = None
        more = {}
        if self.args.cache:
            more["cache_implementation"] = self.args.cache
        with self.torch.inference_mode():
            done = self.model.generate(
                self.ids, attention_mask=self.mask, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, num_beams=1,
                pad_token_id=self.pad, use_cache=True, return_dict_in_generate=True, **more
            )
        sequences = getattr(done, "sequences", done)
        cache = getattr(done, "past_key_values", None)
        cache, self.seen = (self.seen if cache is None else cache), None
        return sequences, cache


# --- measuring -------------------------------------------------------------------------------------------------------------------


class Gpus:
    """The allocator's account of the GPUs that hold the model."""

    def __init__(self, torch, names):
        self.torch = torch
        self.names = names

    def sync(self):
        for name in self.names:
            self.torch.cuda.synchronize(name)

    def reset(self):
        for name in self.names:
            self.torch.cuda.reset_peak_memory_stats(name)

    def each(self, figure):
        return {name: figure(name) for name in self.names}

    def used(self, name):
        try:
            free, total = self.torch.cuda.mem_get_info(name)
            return total - free
        except Exception as e:  # some virtual GPUs do not tell
            note("%s does not tell how much of it is used: %s" % (name, type(e).__name__))
            return None

    def outside(self, name):
        used = self.used(name)
        return None if used is None else used - self.torch.cuda.memory_reserved(name)

    def others(self, name):
        """Processes on the GPU beside this one, as far as a container is shown any; None where it is not told."""
        try:
            text = self.torch.cuda.list_gpu_processes(name)
        except Exception:
            return None
        rows = [line for line in text.splitlines() if line.startswith("process")]
        return max(0, len(rows) - 1) if "not found" not in text else None

    def facts(self, name):
        p = self.torch.cuda.get_device_properties(name)
        uuid = getattr(p, "uuid", None)
        bus = None
        if getattr(p, "pci_bus_id", None) is not None and getattr(p, "pci_device_id", None) is not None:
            bus = "%08x:%02x:%02x.0" % (getattr(p, "pci_domain_id", 0), p.pci_bus_id, p.pci_device_id)
        return {"name": p.name, "uuid": str(uuid) if uuid is not None else None, "pci_bus_id": bus, "total_bytes": p.total_memory}


def measured(generate, gpus, tokens, loaded):
    """One generate with its peak: seconds, per-device figures, and the bytes of its cache."""
    give_back()
    if gpus:
        gpus.sync()
        gpus.reset()
    with Peak() as peak:
        begin = time.perf_counter()
        sequences, cache = generate(tokens)
        if gpus:
            gpus.sync()
        seconds = time.perf_counter() - begin
    own, held, sizes = cache_bytes(cache)
    figures = {}
    if gpus:
        for name in gpus.names:
            top = gpus.torch.cuda.max_memory_allocated(name)
            figures[name] = {
                "peak_bytes": top,
                "peak_reserved_bytes": gpus.torch.cuda.max_memory_reserved(name),
                "activation_peak_bytes": top - loaded[name] - held.get(name, 0),
            }
    else:
        grown = None if peak.peak is None else peak.peak - peak.before - sum(held.values())
        if grown is not None and grown < 0:
            # Memory that was free in the process already: nothing can be said.
            note("resident memory grew by less than the KV cache in an iteration: its activation peak is unknown there")
            grown = None
        figures["cpu"] = {"peak_bytes": peak.peak, "peak_reserved_bytes": None, "activation_peak_bytes": grown}
    return {
        "seconds": seconds, "sequences": sequences, "cache": cache, "own": own, "held": held, "sizes": sizes,
        "figures": figures, "rss_before": peak.before, "rss_peak": peak.peak, "rss_by": peak.by,
    }


def middle(figures):
    figures = sorted(figures)
    half = len(figures) // 2
    return figures[half] if len(figures) % 2 else (figures[half - 1] + figures[half]) / 2


def most(figures):
    """The highest of what is known."""
    return max((f for f in figures if f is not None), default=None)


def summed(figures):
    """The sum where all are known."""
    figures = list(figures)
    return sum(figures) if figures and None not in figures else None


# --- per layer -------------------------------------------------------------------------------------------------------------------


def tensor_bytes(thing, depth=0):
    """Bytes of the tensors in a module's output."""
    if hasattr(thing, "element_size") and hasattr(thing, "numel"):
        return thing.numel() * thing.element_size()
    if depth > 3:
        return 0
    if isinstance(thing, dict):
        return sum(tensor_bytes(v, depth + 1) for v in thing.values())
    if isinstance(thing, (list, tuple)):
        return sum(tensor_bytes(v, depth + 1) for v in thing)
    return 0


def rows_of(torch, model):
    """The modules that make a table: the longest list's items, and what lies beside it."""
    stacks = [(name, m) for name, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m) > 0]
    # An encoder and a decoder are two stacks; experts within a layer are none of their own.
    tops = [(n, m) for n, m in stacks if not any(n.startswith(o + ".") for o, _ in stacks if o != n)]
    layers = [("%s.%d" % (n, i), child) for n, stack in tops for i, child in enumerate(stack)]
    inside = tuple(n + "." for n, _ in layers)
    rest = []
    for name, module in model.named_modules():
        leaf = not any(True for _ in module.children())
        if leaf and name and not name.startswith(inside) and name not in dict(layers):
            rest.append((name, module))
    order = {id(m): i for i, (_, m) in enumerate(model.named_modules())}
    return sorted(layers + rest, key=lambda row: order[id(row[1])])


def layer_table(torch, model, generate, gpus):
    """Parameters and activations by module, from hooks in one pass over the prompt."""
    rows, hooks = [], []
    for name, module in rows_of(torch, model):
        tensors = list(module.parameters()) + list(module.buffers())
        where = {str(t.device) for t in tensors}
        spans = [span(t) for outer in tensors if outer.device.type != "meta" for t in plain(outer)]
        row = {
            "name": name, "class": type(module).__name__, "device": sorted(where)[0] if where else None,
            "parameter_bytes": union(spans),
            "output_bytes": None, "inner_bytes": None, "peak_bytes": None,
        }
        rows.append(row)

        def before(_m, _i, row=row, place=row["device"]):
            if gpus and place in gpus.names:
                row["_before"] = torch.cuda.memory_allocated(place)
                torch.cuda.reset_peak_memory_stats(place)

        def after(_m, _i, output, row=row, place=row["device"]):
            row["output_bytes"] = tensor_bytes(output)
            if gpus and place in gpus.names and "_before" in row:
                row["peak_bytes"] = torch.cuda.max_memory_allocated(place) - row.pop("_before")

        hooks += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
        leaves = [m for m in module.modules() if not any(True for _ in m.children())]
        for leaf in leaves:
            def inner(_m, _i, output, row=row):
                row["inner_bytes"] = (row["inner_bytes"] or 0) + tensor_bytes(output)

            hooks.append(leaf.register_forward_hook(inner))
    try:
        generate(1)
    finally:
        for hook in hooks:
            hook.remove()
    for row in rows:
        row.pop("_before", None)
    return rows


def operators(torch, generate, gpus, tokens):
    """The operators that take most, by torch.profiler."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if gpus else [])
    with profile(activities=activities, profile_memory=True, record_shapes=True) as profiler:
        generate(tokens)
        if gpus:
            gpus.sync()
    side = "device" if gpus else "cpu"

    def first(event, *names):
        for name in names:
            value = getattr(event, name, None)
            if value is not None:
                return value
        return None

    rows = []
    for event in profiler.key_averages():
        if event.key.startswith("["):
            continue  # the profiler's own bookkeeping
        device_us = first(event, "self_device_time_total", "self_cuda_time_total") if gpus else None
        if side == "device":
            memory = first(event, "self_device_memory_usage", "self_cuda_memory_usage")
        else:
            memory = first(event, "self_cpu_memory_usage")
        rows.append({
            "name": event.key, "calls": event.count, "self_memory_bytes": memory,
            "self_cpu_ms": event.self_cpu_time_total / 1e3, "self_device_ms": None if device_us is None else device_us / 1e3,
        })
    if gpus and not any(row["self_device_ms"] for row in rows):
        note("the profiler saw no time on the GPU: its tracing library (CUPTI) may be missing or not permitted")
    by_memory = sorted(rows, key=lambda r: -(r["self_memory_bytes"] or 0))[:TOP]
    by_time = sorted(rows, key=lambda r: -max(r["self_cpu_ms"] if not gpus else 0, r["self_device_ms"] or 0))[:TOP]
    return [r for r in by_memory if (r["self_memory_bytes"] or 0) > 0], by_time


# --- the run ---------------------------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failed("usage", message)


def arguments(words):
    def at_least(least):
        def read(text):
            value = int(text)
            if value < least:
                raise argparse.ArgumentTypeError("must be %d at least" % least)
            return value

        return read

    p = Parser(description="Memory of a transformers model while it generates.", allow_abbrev=False)
    p.add_argument("out", metavar="OUT.json")
    p.add_argument("--model", help="id or path")
    p.add_argument("--random-weights", metavar="CONFIG", help="config.json (or its folder): build the model, load nothing")
    p.add_argument("--tokenizer", help="where it is not the model's")
    p.add_argument("--prompt", help="text; without it random tokens")
    p.add_argument("--prompt-file", help="the same from a file")
    p.add_argument("--prompt-tokens", type=at_least(1), default=256, help="random prompt tokens [256]")
    p.add_argument("--max-tokens", type=at_least(1), default=128, help="tokens to generate [128]")
    p.add_argument("--batch-size", type=at_least(1), default=1)
    p.add_argument("--dtype", help="auto, float32, float16, bfloat16 [auto: as the checkpoint says]")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    p.add_argument("--warmup", type=at_least(0), default=1, help="iterations before measuring [1]")
    p.add_argument("--iterations", type=at_least(1), default=3, help="measured iterations [3]")
    p.add_argument("--per-layer", action="store_true", help="operators by torch.profiler, and a table of the layers")
    p.add_argument("--seed", type=int, default=0, help="of the random prompt [0]")
    p.add_argument("--cache", metavar="NAME", help="cache_implementation of generate: static, …")
    p.add_argument("--attention", metavar="NAME", help="attn_implementation: eager, sdpa, …")
    p.add_argument("--trust-remote-code", action="store_true")
    p.add_argument("--hold", action="store_true", help="at the end keep model and cache until standard input ends")
    args = p.parse_args(words)
    if args.prompt is not None and args.prompt_file:
        raise Failed("usage", "--prompt and --prompt-file exclude each other")
    if bool(args.model) == bool(args.random_weights):
        raise Failed("usage", "name --model or --random-weights, and not both")
    if args.random_weights and (args.prompt is not None or args.prompt_file) and not args.tokenizer:
        raise Failed("usage", "random weights have no tokenizer for the prompt: name one with --tokenizer, or use --prompt-tokens")
    return args


def libraries():
    try:
        import torch
    except ImportError as e:
        raise Failed("import", "torch cannot be imported: %s" % e)
    try:
        import transformers

        transformers.AutoModelForCausalLM  # it is imported lazily, and fails here where it does
    except ImportError as e:
        raise Failed("import", "transformers cannot be imported: %s" % e)
    except AttributeError:
        raise Failed("import", "transformers %s has no AutoModelForCausalLM" % getattr(transformers, "__version__", "?"))
    return torch, transformers


def versions(torch, transformers):
    try:
        import accelerate

        has = accelerate.__version__
    except Exception:  # broken installations fail with anything
        has = None
    return {
        "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__, "accelerate": has,
        "cuda": getattr(torch.version, "cuda", None) if torch.cuda.is_available() else None,
        "hip": getattr(torch.version, "hip", None),
    }


def run(args):
    start = resident()
    say("start", python=platform.python_version())
    torch, transformers = libraries()
    told = versions(torch, transformers)
    torch.manual_seed(args.seed)
    where = target(torch, args)
    if where:
        names = ["cuda:%d" % i for i in range(torch.cuda.device_count())] if where == "auto" else [where]
        gpus = Gpus(torch, names)
        for name in names:
            torch.zeros(1, device=name)  # the context comes to be before its size is asked for
    else:
        gpus = None
    give_back()
    imported = resident()
    before = gpus.each(torch.cuda.memory_allocated) if gpus else {}
    outside_before = gpus.each(gpus.outside) if gpus else {}
    say("load", torch=told["torch"], transformers=told["transformers"], gpus=len(gpus.names) if gpus else 0)

    try:
        model = load(torch, transformers, args, where)
    except (Failed, MemoryError):
        raise
    except Exception as e:
        raise failed_load(e, args)
    give_back()
    if gpus:
        gpus.sync()
    weights, placed = weights_of(model)
    after = gpus.each(torch.cuda.memory_allocated) if gpus else {}
    weights["allocator_bytes"] = sum(after.values()) - sum(before.values()) if gpus else None
    on_gpus = sum(placed.get(name, 0) for name in gpus.names) if gpus else 0
    weights["allocator_difference_bytes"] = weights["allocator_bytes"] - on_gpus if gpus else None
    if weights["offloaded_bytes"]:
        note("%d bytes of weights do not fit and are loaded anew for every step (accelerate's offloading)" % weights["offloaded_bytes"])
    loaded_status = status()
    config = text_config(model)
    dtype = str(getattr(model, "dtype", "")).replace("torch.", "") or None
    say("loaded", dtype=dtype, weights_bytes=weights["bytes"], model=args.model or "random_weights")

    try:
        args.inputs = inputs_for(torch, transformers, model, args)
    except Failed:
        raise
    except Exception as e:
        raise failed_load(e, args)
    generate = Generate(torch, model, args)
    say("warmup", of=args.warmup)
    for _ in range(args.warmup):
        generate(args.max_tokens)
    if gpus:
        gpus.sync()

    say("measure", of=args.iterations)
    prefill = measured(generate, gpus, 1, after)
    prefill_own = sum(prefill["own"].values())
    prefill_tokens, _ = cached_tokens(prefill["cache"])
    prefill.pop("cache")
    iterations, last, top = [], None, None
    for n in range(1, args.iterations + 1):
        last = None  # or two caches would be alive at once
        last = measured(generate, gpus, args.max_tokens, after)
        iterations.append(last)
        if top is None or (last["rss_peak"] or 0) > (top["rss_peak"] or 0):
            top = last
        if n < args.iterations:
            last.pop("cache")
        say("iteration", n=n, of=args.iterations)

    say("measured")
    cache = last["cache"]
    tokens, told_by_cache = cached_tokens(cache)
    own = sum(last["own"].values())
    prompt_tokens = int(args.inputs[0].shape[-1])
    generated = int(last["sequences"].shape[-1])
    # A decoder beside an encoder begins with a token of its own.
    generated -= 1 if getattr(model.config, "is_encoder_decoder", False) else prompt_tokens
    if generated < args.max_tokens:
        note("%d tokens were asked for and %d generated" % (args.max_tokens, generated))
    per_token = None
    pairs = list(zip(prefill["sizes"], last["sizes"])) if len(prefill["sizes"]) == len(last["sizes"]) else []
    # Layers with a window or a state of fixed size stand beside layers that grow.
    growth = sum(max(0, after_ - before_) for before_, after_ in pairs)
    if growth and tokens is not None and prefill_tokens is not None and tokens > prefill_tokens:
        per_token = growth / (tokens - prefill_tokens) / args.batch_size
        per_token = int(per_token) if per_token == int(per_token) else per_token
    elif own and args.max_tokens > 1:
        note("the cache does not grow with the tokens: it was allocated in one piece, or it keeps a state of fixed size")
        # The shape of a state that does not grow says nothing of tokens.
        tokens = tokens if told_by_cache else None
    if not own:
        note("no cache was found after generate: this model keeps none, or in a form that this probe does not know")
    tensors = [t for t in cache_tensors(cache)]
    devices = device_rows(torch, gpus, placed, after, before, outside_before, prefill, iterations)
    seconds = [i["seconds"] for i in iterations]
    sequences = args.batch_size
    result = {
        "schema": SCHEMA,
        "measured_by": "cuda_allocator" if gpus else "rss",
        "versions": told,
        "pid": os.getpid(),
        "model": {
            "name": args.model or args.random_weights, "class": type(model).__name__, "type": getattr(model.config, "model_type", None),
            "dtype": dtype, "num_parameters": sum(p.numel() for p in model.parameters()),
            "num_layers": getattr(config, "num_hidden_layers", None), "quantization": quantization(model),
            "random_weights": bool(args.random_weights),
            "devices": {k or "model": str(v) for k, v in getattr(model, "hf_device_map", None).items()} if getattr(model, "hf_device_map", None) else None,
        },
        "load": {
            "batch_size": sequences, "prompt": args.inputs[2], "prompt_tokens": prompt_tokens, "generated_tokens": generated,
            "total_tokens": prompt_tokens + generated, "warmup": args.warmup, "iterations": args.iterations,
        },
        "weights": weights,
        "kv_cache": {
            "bytes": own, "held_bytes": sum(last["held"].values()), "prefill_bytes": prefill_own, "tokens": tokens, "bytes_per_token": per_token,
            "dtype": str(tensors[0].dtype).replace("torch.", "") if tensors else None,
            "class": type(cache).__name__ if cache is not None else None, "tensors": len(last["sizes"]),
        },
        "devices": devices,
        "rss": {
            "start_bytes": start, "imported_bytes": imported, "loaded_bytes": loaded_status.get("VmRSS"),
            "loaded_anon_bytes": loaded_status.get("RssAnon"), "loaded_file_bytes": loaded_status.get("RssFile"),
            "before_bytes": top["rss_before"], "peak_bytes": top["rss_peak"], "peak_by": top["rss_by"],
        },
        "activation_peak_bytes": summed(d["activation_peak_bytes"] for d in devices),
        "prefill_activation_peak_bytes": summed(d["prefill_activation_peak_bytes"] for d in devices),
        "multi_gpu_overhead_bytes": multi_gpu_overhead(devices) if gpus else None,
        "iterations": [
            {
                "ms": i["seconds"] * 1e3, "peak_bytes": summed(f["peak_bytes"] for f in i["figures"].values()),
                "activation_peak_bytes": summed(f["activation_peak_bytes"] for f in i["figures"].values()),
            }
            for i in iterations
        ],
        "latency": {
            "median_ms": middle(seconds) * 1e3, "min_ms": min(seconds) * 1e3, "max_ms": max(seconds) * 1e3,
            "mean_ms": sum(seconds) / len(seconds) * 1e3, "prefill_ms": prefill["seconds"] * 1e3,
            "tokens_per_second": generated * sequences / middle(seconds),
        },
        "layer_profile": None,
        "notes": notes,
    }
    if args.per_layer:
        say("profile", tokens=min(args.max_tokens, PROFILED_TOKENS))
        result["layer_profile"] = layer_profile(torch, model, generate, gpus, min(args.max_tokens, PROFILED_TOKENS))
    if args.hold:
        # What is held now, for whoever compares it with another's reading of this process.
        result["held"] = {
            "reserved_bytes": summed(torch.cuda.memory_reserved(n) for n in gpus.names) if gpus else None,
            "allocated_bytes": summed(torch.cuda.memory_allocated(n) for n in gpus.names) if gpus else None,
            "rss_bytes": resident(),
        }
    write(args.out, result)
    if args.hold:
        say("holding", pid=os.getpid())
        sys.stdin.read()
    say("done")


def quantization(model):
    told = getattr(model.config, "quantization_config", None)
    if told is None:
        return None
    method = told.get("quant_method") if isinstance(told, dict) else getattr(told, "quant_method", None)
    return str(getattr(method, "value", method)) if method is not None else type(told).__name__


def device_rows(torch, gpus, placed, after, before, outside_before, prefill, iterations):
    rows = []
    held = iterations[-1]["held"]
    for name in gpus.names if gpus else ["cpu"]:
        each = [i["figures"][name] for i in iterations]
        row = {"device": name, "name": platform.processor() or platform.machine(), "uuid": None, "pci_bus_id": None, "total_bytes": None}
        if gpus:
            row.update(gpus.facts(name))
        peak, reserved = most(f["peak_bytes"] for f in each), most(f["peak_reserved_bytes"] for f in each)
        row.update({
            "weights_bytes": placed.get(name, 0),
            "kv_cache_bytes": held.get(name, 0),
            "loaded_bytes": after.get(name),
            "allocator_difference_bytes": after[name] - before[name] - placed.get(name, 0) if gpus else None,
            "peak_bytes": peak,
            "peak_reserved_bytes": reserved,
            "reserved_minus_allocated_bytes": reserved - peak if gpus else None,
            "activation_peak_bytes": most(f["activation_peak_bytes"] for f in each),
            "prefill_activation_peak_bytes": prefill["figures"][name]["activation_peak_bytes"],
            "used_bytes": gpus.used(name) if gpus else None,
            "non_torch_bytes": gpus.outside(name) if gpus else None,
            "non_torch_before_load_bytes": outside_before.get(name),
            "other_processes": gpus.others(name) if gpus else None,
        })
        rows.append(row)
    if gpus and placed.get("cpu"):
        note("%d bytes of weights are in host memory" % placed["cpu"])
    return rows


def multi_gpu_overhead(devices):
    """What stands on every GPU and would stand on one once."""
    used = [d for d in devices if d["weights_bytes"] or d["kv_cache_bytes"]]
    if len(used) < 2:
        return None
    once = ("activation_peak_bytes", "reserved_minus_allocated_bytes", "non_torch_bytes")
    repeated = 0
    for figure in once:
        each = [d[figure] for d in used]
        if None in each:
            return None
        repeated += sum(each) - max(each)
    return repeated


def layer_profile(torch, model, generate, gpus, tokens):
    found = {"tokens": tokens, "operators_by_memory": [], "operators_by_time": [], "layers": []}
    try:
        found["layers"] = layer_table(torch, model, generate, gpus)
    except Exception as e:
        if is_oom(e):
            raise
        note("the table of layers could not be made: %s: %s" % (type(e).__name__, e))
    try:
        found["operators_by_memory"], found["operators_by_time"] = operators(torch, generate, gpus, tokens)
    except Exception as e:
        if is_oom(e):
            raise
        note("torch.profiler failed: %s: %s" % (type(e).__name__, e))
    return found


def is_oom(e):
    return isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or any(
        words in str(e) for words in ("CUDA out of memory", "HIP out of memory", "can't allocate memory", "not enough memory", "std::bad_alloc")
    )


def failed_load(e, args):
    if is_oom(e):
        return e
    text = "%s: %s" % (type(e).__name__, e)
    if isinstance(e, ImportError):
        return Failed("import", text)
    gated = any(words in text for words in ("gated repo", "GatedRepoError", "401 Client Error", "403 Client Error"))
    return Failed("gated" if gated else "model", "`%s` cannot be loaded: %s" % (args.model or args.random_weights, text))


def write(path, result):
    """Whole or not at all."""
    beside = "%s.part" % path
    with open(beside, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1, allow_nan=False)
        f.write("\n")
    os.replace(beside, path)


def main(words):
    out = words[0] if words and not words[0].startswith("-") else None
    try:
        run(arguments(words))
        return 0
    except Failed as e:
        kind, message = e.kind, str(e)
    except KeyboardInterrupt:
        kind, message = "interrupted", "interrupted"
    except Exception as e:
        kind = "oom" if is_oom(e) else "run"
        message = "%s: %s" % (type(e).__name__, e)
        if kind == "run":
            import traceback

            sys.stderr.write(without_secrets(traceback.format_exc()))
    message = without_secrets(" ".join(message.split()))[:LONGEST_MESSAGE]
    if kind == "oom" and "out of memory" not in message:
        message = "out of memory: " + message
    error = {"kind": kind, "message": message, "phase": state["phase"]}
    try:
        if out:
            write(out, {"schema": SCHEMA, "error": error, "notes": notes})
    except OSError as e:
        sys.stderr.write("cannot write `%s`: %s\n" % (out, e))
    sys.stderr.write("plimsoll-probe error kind=%s %s\n" % (kind, message))
    return EXITS.get(kind, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
