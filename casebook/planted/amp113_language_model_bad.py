"""LoRA-free full fine-tuning of a small causal LM with a hand-written loop."""

import argparse

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model_name_or_path", default="facebook/opt-350m")
    p.add_argument("--learning_rate", type=float, default=1e-5)
    p.add_argument("--gradient_accumulation_steps", type=int, default=8)
    return p.parse_args()


def main(texts):
    args = parse()
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, torch_dtype=torch.float16)
    model.to("cuda")
    model.gradient_checkpointing_enable()

    def collate(batch):
        enc = tokenizer(batch, return_tensors="pt", padding=True, truncation=True, max_length=1024)
        labels = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return {**enc, "labels": labels}

    dl = DataLoader(texts, batch_size=2, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate)
    scaler = torch.amp.GradScaler("cuda")
    for step, batch in enumerate(dl):
        batch = {k: v.to("cuda") for k, v in batch.items()}
        with torch.amp.autocast("cuda", dtype=torch.float16):
            loss = model(**batch).loss / args.gradient_accumulation_steps
        scaler.scale(loss).backward()
        if (step + 1) % args.gradient_accumulation_steps == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


if __name__ == "__main__":
    main(["hello world"] * 64)
