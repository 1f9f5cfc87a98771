/* Stands in for Metal Performance Shaders, which Linux does not have: prints its failed assertion, then aborts. */
#include <stdio.h>
#include <stdlib.h>

void check_bytes(long long total) {
    if (total <= 1LL << 32)
        return;
    fputs("/AppleInternal/Library/BuildRoots/00000000-0000-11ee-0000-000000000000/Library/Caches/com.apple.xbs/Sources/"
          "MetalPerformanceShaders/MPSCore/Types/MPSNDArray.mm:724: failed assertion `[MPSNDArray "
          "initWithDevice:descriptor:] Error: total bytes of NDArray > 2**32'\n",
          stderr);
    abort();
}
