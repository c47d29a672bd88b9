"""Text, and the way from text to token arrays: corpora, the byte tokenizer, token shards, n-gram baselines."""
