// Functions that glibc has had for ever, and that a library built with glibc 2.34 asks for by a newer version: those of
// libpthread and libdl, which became part of libc there, and those that were macros before. Defined here they are what
// the plugin and its static C++ runtime call, and each calls the version that every glibc has. Where libpthread and libdl
// are libraries of their own they are loaded by name (CMakeLists.txt).
//
// <pthread.h>, <dlfcn.h> and <sys/stat.h> declare the same names with attributes of their own and are left out.
#ifdef __x86_64__
#include <sys/types.h>

#define WEFT_OLD_VERSION(version, result, name, parameters, arguments)                            \
  __asm__(".symver old_" #name ", " #name "@GLIBC_" version);                                     \
  extern "C" result old_##name parameters;                                                        \
  extern "C" [[gnu::visibility("hidden")]] result name parameters { return old_##name arguments; }
#define WEFT_OLD(result, name, parameters, arguments) WEFT_OLD_VERSION("2.2.5", result, name, parameters, arguments)

WEFT_OLD(int, pthread_create, (pthread_t * id, const pthread_attr_t* attr, void* (*run)(void*), void* arg), (id, attr, run, arg))
WEFT_OLD(int, pthread_detach, (pthread_t id), (id))
WEFT_OLD(int, pthread_join, (pthread_t id, void** result), (id, result))
WEFT_OLD_VERSION("2.12", int, pthread_setname_np, (pthread_t id, const char* name), (id, name))
WEFT_OLD(int, pthread_sigmask, (int how, const void* set, void* old), (how, set, old))
WEFT_OLD(int, pthread_once, (pthread_once_t * control, void (*run)()), (control, run))
WEFT_OLD(int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex))
WEFT_OLD(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
WEFT_OLD(int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
WEFT_OLD(int, pthread_rwlock_unlock, (pthread_rwlock_t * lock), (lock))
WEFT_OLD(int, pthread_key_create, (pthread_key_t * key, void (*destroy)(void*)), (key, destroy))
WEFT_OLD(int, __pthread_key_create, (pthread_key_t * key, void (*destroy)(void*)), (key, destroy))
WEFT_OLD(int, pthread_key_delete, (pthread_key_t key), (key))
WEFT_OLD(void*, pthread_getspecific, (pthread_key_t key), (key))
WEFT_OLD(int, pthread_setspecific, (pthread_key_t key, const void* value), (key, value))
WEFT_OLD(void*, dlopen, (const char* file, int mode), (file, mode))
WEFT_OLD(void*, dlsym, (void* library, const char* name), (library, name))
WEFT_OLD(char*, dlerror, (), ())

extern "C" {
int __fxstat(int version, int fd, void* status);
int __xstat(int version, const char* path, void* status);
int __lxstat(int version, const char* path, void* status);

#define WEFT_HIDDEN [[gnu::visibility("hidden")]]
inline constexpr int kStatVersion = 1;  // of struct stat, on this architecture the same with 64-bit offsets
WEFT_HIDDEN int fstat(int fd, void* status) { return __fxstat(kStatVersion, fd, status); }
WEFT_HIDDEN int fstat64(int fd, void* status) { return __fxstat(kStatVersion, fd, status); }
WEFT_HIDDEN int stat(const char* path, void* status) { return __xstat(kStatVersion, path, status); }
WEFT_HIDDEN int lstat(const char* path, void* status) { return __lxstat(kStatVersion, path, status); }

/// That there is one thread only would spare reference counts their atomic additions; 0: nobody has said so.
WEFT_HIDDEN extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}
#endif
