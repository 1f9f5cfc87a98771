"""OpenMP and BLAS runtimes: of an environment, a living process, imports, wheels."""
