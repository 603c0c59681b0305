"""Make a CUDA-flavoured torch wheel loadable without any NVIDIA library: the index has no other torch for Linux x86_64.

Its shared objects need some 15 NVIDIA libraries (over 2 GB). On a CPU-only host none of that code runs, but the
dynamic loader still wants every library and every symbol that is not bound lazily. So: write ONE small shared
object that defines those symbols, and point each missing soname at it by symlink. (The loader maps an inode once,
and an object without version definitions satisfies versioned references.)

usage: gen_cuda_stub.py TORCH_LIB_DIR [--drop-cuda-kernels]
  --drop-cuda-kernels  also delete libtorch_cuda*.so and friends (0.5 GB) and stub them the same way
"""
import os
import pathlib
import re
import subprocess
import sys

# Libraries that the base image has.
SYSTEM = re.compile(r'^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|numa)\.so|ld-linux|linux-vdso)')
RUNTIME = ['libc.so.6', 'libm.so.6', 'libdl.so.2', 'librt.so.1', 'libpthread.so.0',
           'libstdc++.so.6', 'libgcc_s.so.1', 'ld-linux-x86-64.so.2']
RUNTIME_VERSION = re.compile(r'(GLIBC|GLIBCXX|CXXABI|GCC|GOMP|OMP|libnuma)_')
CUDA_KERNELS = ['libtorch_cuda.so', 'libtorch_cuda_linalg.so', 'libtorch_nvshmem.so', 'libcaffe2_nvrtc.so']
# C++ functions of libtorch_cuda that libtorch_python calls while it is imported:
HOOKS = {'_ZN4c10d15get_gil_checkerEv'}              # returns a reference that the caller writes to
CTORS = {'_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb'}   # object built as a default argument
MESSAGES = {'cudaGetErrorString', 'cudaGetErrorName', 'ncclGetErrorString', 'ncclGetLastError', 'cudnnGetErrorString'}


def output_of(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def needed(so):
    return re.findall(r'\(NEEDED\).*\[(.+?)\]', output_of('readelf', '-dW', so))


def dynsyms(so):
    """yield (name, version, type, bind, defined)"""
    for line in output_of('readelf', '--dyn-syms', '-W', so).splitlines():
        f = line.split()
        if len(f) < 8 or not f[0].rstrip(':').isdigit():
            continue
        name, _, version = f[7].partition('@')
        yield name, version.lstrip('@'), f[3], f[4], f[6] != 'UND'


def undefined_symbols(objects):
    """name -> OBJECT or FUNC, of all that these objects want and neither they nor the runtime define"""
    defined, want = set(), {}
    # Never shadow the C and C++ runtime: torch carries a few unversioned references to libstdc++.
    for name in RUNTIME:
        path = output_of('gcc', '-print-file-name=' + name).strip()
        if os.path.exists(path):
            defined |= {s[0] for s in dynsyms(path) if s[4]}
    for so in objects:
        for name, version, kind, bind, is_defined in dynsyms(so):
            if is_defined:
                defined.add(name)
            elif bind != 'WEAK' and not RUNTIME_VERSION.match(version):
                is_data = kind == 'OBJECT' or name.startswith(('_ZTV', '_ZTI', '_ZTS'))
                want[name] = 'OBJECT' if is_data else 'FUNC'
    return {n: k for n, k in want.items() if n and n not in defined and not n.startswith(('_Py', 'Py'))}


def function(name, *body):
    return ['.globl "%s"' % name, '.type "%s",@function' % name, '"%s": %s' % (name, body[0]), *body[1:]]


def assembly(want):
    text = ['.section .note.GNU-stack,"",@progbits', '.text']
    data = ['.bss', '.balign 64', 'scratch: .zero 4096']
    for n, kind in sorted(want.items()):
        if n.startswith('_ZTI'):      # type information: pybind11 reads the name at import
            text += ['.section .data.rel,"aw",@progbits', '.balign 8', '.globl "%s"' % n, '.type "%s",@object' % n,
                     '.size "%s",16' % n, '"%s": .quad _ZTVN10__cxxabiv117__class_type_infoE+16, 1f' % n,
                     '.section .rodata', '1: .asciz "%s"' % n[4:], '.text']
        elif kind == 'OBJECT':
            data += ['.globl "%s"' % n, '.type "%s",@object' % n, '.size "%s",512' % n, '"%s": .zero 512' % n]
        elif n in HOOKS:
            text += function(n, 'lea scratch(%rip),%rax', 'ret')
        elif n in CTORS:
            text += function(n, 'lea fakevt+16(%rip),%rax', 'mov %rax,(%rdi)', 'ret')
        elif n.startswith('_Z'):      # any other C++ function must never be reached: say which one was
            text += function(n, 'lea 1f(%rip),%rdi', 'jmp stub_trap',
                             '.section .rodata', '1: .asciz "%s"' % n, '.text')
        elif n in MESSAGES:
            text += function(n, 'lea nodev(%rip),%rax', 'ret')
        else:                         # C API: cudaErrorNoDevice (100)
            text += function(n, 'mov $100,%eax', 'ret')
    text += ['.text', 'noop: ret', '.section .data.rel,"aw",@progbits', '.balign 8', 'fakevt: .quad 0, faketi']
    text += ['.quad noop'] * 16
    text += ['faketi: .quad _ZTVN10__cxxabiv117__class_type_infoE+16, 1f', '.section .rodata',
             '1: .asciz "7cudastub"', 'nodev: .asciz "no CUDA-capable device (stub library)"']
    return '\n'.join(text + data) + '\n'


def build(lib, want):
    source, trap, stub = lib / 'stub.S', lib / 'stub_trap.c', lib / 'libcudastub.so'
    source.write_text(assembly(want))
    trap.write_text('#include <stdio.h>\n#include <stdlib.h>\n'
                    '__attribute__((visibility("hidden"))) void stub_trap(const char *n)'
                    '{ fprintf(stderr, "cudastub: call of %s\\n", n); abort(); }\n')
    subprocess.run(['gcc', '-shared', '-fPIC', '-O1', '-o', stub, source, trap, '-lstdc++',
                    '-Wl,-soname,libcudastub.so'], check=True)
    source.unlink()
    trap.unlink()
    return stub


def main():
    lib = pathlib.Path(sys.argv[1])
    if '--drop-cuda-kernels' in sys.argv:
        for name in CUDA_KERNELS:
            path = lib / name
            if path.exists() and not path.is_symlink():
                print('drop %-28s %6.1f MB' % (name, path.stat().st_size / 1e6))
                path.unlink()
    keep = sorted(p for p in lib.glob('*.so*') if not p.is_symlink() and p.name != 'libcudastub.so')
    have = {p.name for p in keep}
    missing = sorted({n for p in keep for n in needed(p) if n not in have and not SYSTEM.match(n)})
    want = undefined_symbols(keep)
    stub = build(lib, want)
    for name in missing:
        path = lib / name
        if path.is_symlink() or path.exists():
            path.unlink()
        path.symlink_to(stub.name)
    data = sum(kind == 'OBJECT' for kind in want.values())
    print('stubbed %d symbols (%d data), %d sonames, %.1f MB: %s' % (
        len(want), data, len(missing), stub.stat().st_size / 1e6, ' '.join(missing)))


main()
