"""Fine-tune a causal language model and report its token accuracy."""

from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments


def token_accuracy(prediction):
    predicted, labels = prediction
    predicted = predicted[:, :-1]
    mask = labels[:, 1:] != -100
    return {"accuracy": float((predicted == labels[:, 1:])[mask].mean())}


def main(train_dataset, eval_dataset):
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    arguments = TrainingArguments(output_dir="out", eval_strategy="epoch", per_device_eval_batch_size=8)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
        compute_metrics=token_accuracy,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
    )
    trainer.train()
