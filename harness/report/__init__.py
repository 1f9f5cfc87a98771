"""Words: a verdict document as text. Reads documents and evidence, looks at nothing else."""
