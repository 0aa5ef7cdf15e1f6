import queue
import threading

import torch


class BackgroundScorer:
    """Scores batches in a thread while the main thread prepares the next."""

    def __init__(self, model):
        self.model = model.cuda().eval()
        self.todo: queue.Queue = queue.Queue(maxsize=4)
        self.done: queue.Queue = queue.Queue()

    def _work(self):
        while True:
            batch = self.todo.get()
            if batch is None:
                return
            with torch.inference_mode():
                self.done.put(self.model(batch.cuda()).float().cpu())

    def score(self, batches):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            worker = threading.Thread(target=self._work, daemon=True)
            worker.start()
            for b in batches:
                self.todo.put(b)
            self.todo.put(None)
            worker.join()
        return [self.done.get() for _ in range(self.done.qsize())]
