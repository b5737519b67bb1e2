// What signal handlers note of the stacks of the threads they interrupt. One per process: a handler knows
// nothing but statics. For files of this folder only.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "inject/stack_capture.h"
#include "inject/thread_timers.h"

namespace rooflm::inject {

/// Handles the signal from here on; why not, where the program does. `native`: not only Python's frames.
/// Nothing is noted while `is_on` is false.
std::string open_notes(bool native, const std::atomic<bool>& is_on);
/// Signals that still come are ignored.
void close_notes();
/// Whether the signal is still handled here.
bool has_handler();
/// From here on Python's frames are noted, too.
void note_python(const PythonLayout& layout);

/// The clock of the processor time of a thread of this process.
clockid_t clock_of(std::uint32_t thread);
/// A timer of the processor time that a thread of this process takes, whose signal that thread gets. `pace`:
/// of claim_pace, or nothing: then nothing is noted. `problem`: errno, 0 where all is well.
timer_t start_timer(std::uint32_t thread, double period_s, ThreadPace* pace, int& problem);
void set_timer(timer_t timer, double period_s);
/// One that no thread has; nullptr where there is none left. Their memory stays: a handler may still run.
ThreadPace* claim_pace();
/// What it takes the calling thread to be interrupted by a signal from which nothing is noted.
double signal_cost_s();

/// Hands over what was noted, and how many notes there was no room for.
std::uint64_t take_notes(const std::function<void(const CapturedStack&)>& take);
/// Stacks for handlers of threads that are none of these are free again.
void free_handler_stacks(const std::set<std::uint32_t>& threads);

/// Around a fork, which begins anew after each signal. In the child there is nothing to note for.
void block_notes();
void unblock_notes(bool is_child);

}  // namespace rooflm::inject
