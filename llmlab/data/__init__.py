"""Text, and the way from text to token arrays: corpora, byte tokenizer, token shards, n-gram baselines."""
