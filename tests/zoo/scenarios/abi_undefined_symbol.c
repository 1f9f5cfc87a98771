/* Built against a library version that had this function; the one at run time has not. */

extern int blas_gemm_v2(int rows);

int search(int rows) { return blas_gemm_v2(rows); }
