//! The single memory bound: MemoryBudget and BufferPool
