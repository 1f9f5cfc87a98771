/* Stands in for torch's CUDA library, which needs a GPU: prints what a device-side assertion prints, then aborts. */
#include <stdio.h>
#include <stdlib.h>

void check_index(long index, long size) {
    if (index < size)
        return;
    fputs("../aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [0,0,0], thread: [3,0,0] Assertion "
          "`-sizes[i] <= index && index < sizes[i] && \"index out of bounds\"` failed.\n",
          stderr);
    abort();
}
