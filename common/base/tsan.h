/* tsan.h - to ThreadSanitizer: reads of this thread, between the two, race with stores of others, and that is known; a
 * checksum decides about what was read. Nothing in other builds. */
#ifndef BASE_TSAN_H
#define BASE_TSAN_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN_IS_ON 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define TSAN_IS_ON 1
#endif

#ifdef TSAN_IS_ON
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define tsan_reads_race()          AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define tsan_reads_race_no_more()  AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#define tsan_writes_race()         AnnotateIgnoreWritesBegin(__FILE__, __LINE__)
#define tsan_writes_race_no_more() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
#else
#define tsan_reads_race()          ((void)0)
#define tsan_reads_race_no_more()  ((void)0)
#define tsan_writes_race()         ((void)0)
#define tsan_writes_race_no_more() ((void)0)
#endif

#endif
