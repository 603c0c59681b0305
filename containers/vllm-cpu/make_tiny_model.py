"""Write a random-weights Llama (GQA, bf16, safetensors) and a byte-level BPE tokenizer trained on text made up here,
so that a test has a real model without a download. Byte-identical on every run.

usage: make_tiny_model.py OUT_DIR
"""
import json
import pathlib
import random
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, CONTEXT = 256, 4, 8, 2, 64, 512, 4096
VOCAB = 10240  # `vllm bench latency` draws token ids below 10000 and fails on a smaller vocabulary
SYLLABLES = ['ka', 'ro', 'mi', 'ten', 'sol', 'ver', 'pli', 'an', 'dor', 'esh', 'li', 'mun', 'ta', 'qui', 'ber', 'on']


def write_tokenizer(out):
    rng = random.Random(7)
    words = [''.join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(30000)]
    text = [' '.join(rng.choices(words, k=rng.randint(4, 20))).capitalize() + '.' for _ in range(9000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=['<unk>', '<s>', '</s>'], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    assert tokenizer.get_vocab_size() == VOCAB, tokenizer.get_vocab_size()
    tokenizer.save(str(out / 'tokenizer.json'))


def write_configs(out):
    def dump(name, value):
        (out / name).write_text(json.dumps(value, indent=2) + '\n')
    dump('tokenizer_config.json', {
        'tokenizer_class': 'PreTrainedTokenizerFast', 'bos_token': '<s>', 'eos_token': '</s>', 'unk_token': '<unk>',
        'model_max_length': CONTEXT, 'clean_up_tokenization_spaces': False,
        'chat_template': "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
                         "{% if add_generation_prompt %}assistant:{% endif %}"})
    dump('config.json', {
        'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': VOCAB, 'hidden_size': HIDDEN,
        'intermediate_size': FEED_FORWARD, 'num_hidden_layers': LAYERS, 'num_attention_heads': HEADS,
        'num_key_value_heads': KV_HEADS, 'head_dim': HEAD_DIM, 'hidden_act': 'silu',
        'max_position_embeddings': CONTEXT, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0,
        'tie_word_embeddings': False, 'attention_bias': False, 'mlp_bias': False, 'initializer_range': 0.02,
        'bos_token_id': 1, 'eos_token_id': 2, 'torch_dtype': 'bfloat16', 'use_cache': True})
    dump('generation_config.json', {'bos_token_id': 1, 'eos_token_id': 2})


def write_weights(out):
    generator = torch.Generator().manual_seed(7)

    def weight(*shape):
        return (torch.randn(*shape, generator=generator) * 0.05).to(torch.bfloat16)

    def one():
        return torch.ones(HIDDEN, dtype=torch.bfloat16)

    # The order of these draws is the content of the file.
    tensors = {'model.embed_tokens.weight': weight(VOCAB, HIDDEN), 'model.norm.weight': one(),
               'lm_head.weight': weight(VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        p = f'model.layers.{layer}.'
        tensors |= {
            p + 'input_layernorm.weight': one(), p + 'post_attention_layernorm.weight': one(),
            p + 'self_attn.q_proj.weight': weight(HEADS * HEAD_DIM, HIDDEN),
            p + 'self_attn.k_proj.weight': weight(KV_HEADS * HEAD_DIM, HIDDEN),
            p + 'self_attn.v_proj.weight': weight(KV_HEADS * HEAD_DIM, HIDDEN),
            p + 'self_attn.o_proj.weight': weight(HIDDEN, HEADS * HEAD_DIM),
            p + 'mlp.gate_proj.weight': weight(FEED_FORWARD, HIDDEN),
            p + 'mlp.up_proj.weight': weight(FEED_FORWARD, HIDDEN),
            p + 'mlp.down_proj.weight': weight(HIDDEN, FEED_FORWARD)}
    save_file(tensors, str(out / 'model.safetensors'), metadata={'format': 'pt'})
    return sum(t.numel() for t in tensors.values())


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(out)
    write_configs(out)
    params = write_weights(out)
    print('vocab', VOCAB, 'params', params, 'kv bytes/token', 2 * LAYERS * KV_HEADS * HEAD_DIM * 2)


main()
