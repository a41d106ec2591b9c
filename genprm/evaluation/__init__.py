"""Benchmarks for verifiers: ProcessBench, PRMBench, best-of-N, and the statistics behind their figures."""
