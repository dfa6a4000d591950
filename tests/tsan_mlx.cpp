// ThreadSanitizer's suppressions, linked into programs that run MLX and no others. MLX's library is
// not built with it: its atomics are invisible, so what it frees or destroys behind them looks like
// a race. What it orders for us, base/handover.h tells. Our rooms get no entry here.
//
// --kernels mlx needs one more, called_from_lib:libblas, in a file that TSAN_OPTIONS=suppressions=
// names: that BLAS is a part of MLX's wheel and clears its results with a memset.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libmlx\n"; }
