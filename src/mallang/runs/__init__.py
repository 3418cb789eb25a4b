"""Run folder to model: files, sums, weights, device."""
