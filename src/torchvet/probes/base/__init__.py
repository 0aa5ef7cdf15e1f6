"""What every probe builds on: steps, hooks into torch, the ledger of storages, the budget for sampling."""
