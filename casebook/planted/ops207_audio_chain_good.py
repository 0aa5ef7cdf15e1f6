import torch


@torch.inference_mode()
def log_mel(wave, filters, window, hop=160, n_fft=400):
    spec = torch.stft(wave, n_fft, hop, window=window, return_complex=True).abs()
    spec = spec**2
    mel = filters @ spec
    mel.clamp_(min=1e-10).log10_()
    mel = torch.maximum(mel, mel.amax() - 8.0)
    return mel.add_(4.0).div_(4.0)


class Transcriber:
    def __init__(self, model, filters, device):
        self.model = model.to(device).eval()
        self.device = device
        self.filters = filters.to(device)
        self.window = torch.hann_window(400, device=device)

    @torch.inference_mode()
    def __call__(self, waves):
        mel = log_mel(waves.to(self.device), self.filters, self.window)
        return self.model(mel).argmax(-1).tolist()
