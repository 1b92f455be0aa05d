// Clang's thread-safety annotations: which lock guards what, checked when clang compiles
// (-Wthread-safety). Nothing for other compilers.
#pragma once

#if defined(__clang__)
#define WEFT_THREAD(x) __attribute__((x))
#else
#define WEFT_THREAD(x)
#endif

#define WEFT_CAPABILITY(name) WEFT_THREAD(capability(name))
#define WEFT_SCOPED_CAPABILITY WEFT_THREAD(scoped_lockable)
#define WEFT_GUARDED_BY(lock) WEFT_THREAD(guarded_by(lock))
#define WEFT_REQUIRES(...) WEFT_THREAD(requires_capability(__VA_ARGS__))
#define WEFT_REQUIRES_SHARED(...) WEFT_THREAD(requires_shared_capability(__VA_ARGS__))
#define WEFT_EXCLUDES(...) WEFT_THREAD(locks_excluded(__VA_ARGS__))
#define WEFT_ACQUIRE(...) WEFT_THREAD(acquire_capability(__VA_ARGS__))
#define WEFT_ACQUIRE_SHARED(...) WEFT_THREAD(acquire_shared_capability(__VA_ARGS__))
#define WEFT_RELEASE(...) WEFT_THREAD(release_capability(__VA_ARGS__))
#define WEFT_RELEASE_SHARED(...) WEFT_THREAD(release_shared_capability(__VA_ARGS__))
#define WEFT_TRY_ACQUIRE(...) WEFT_THREAD(try_acquire_capability(__VA_ARGS__))
#define WEFT_ASSERT_HELD(...) WEFT_THREAD(assert_capability(__VA_ARGS__))
// For a function that returns a reference to a lock: which one it is.
#define WEFT_RETURNS_LOCK(x) WEFT_THREAD(lock_returned(x))
// For functions whose locking the analysis can't follow; the reason stands beside it.
#define WEFT_NOT_ANALYZED WEFT_THREAD(no_thread_safety_analysis)
