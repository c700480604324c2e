"""What OpenEvolve's evaluators import from `openevolve`: only `openevolve.evaluation_result`."""
