"""What a CUDA memory snapshot means: lifetimes, phases, steps, categories, growth, fragmentation. Arithmetic, no
judgement.

    Snapshot ─▶ Lifetimes ─▶ Phases ─▶ Categories ─▶ DeviceMemory, which the rules ask

Everything is told from behaviour first (when a block was made and freed, beside which others) and from frames second.
"""
