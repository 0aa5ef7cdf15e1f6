import torch
from tqdm import tqdm


@torch.inference_mode()
def transcribe(model, processor, files, device="cuda"):
    texts = []
    for path in tqdm(files):
        audio = processor.load(path).to(device)
        ids = model.generate(audio, max_new_tokens=128)
        texts += processor.batch_decode(ids)
        del audio, ids
    torch.cuda.empty_cache()
    return texts
