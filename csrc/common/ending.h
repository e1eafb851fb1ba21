// How a program ends when a signal asks it to: within a bounded time, whatever its threads are busy
// with. Python runs its handlers between two of its own instructions, so a native call that takes
// long would hold them up.
#pragma once

#include <string>

namespace pytrace {

// Starts a thread that reads the numbers of signals from `descriptor`, a byte each, as
// signal.set_wakeup_fd writes them; `seconds` after the first SIGINT or SIGTERM it calls end_now.
// Throws std::runtime_error if there can be no thread.
void end_on_signals(int descriptor, double seconds);

// Sets what end_now says after "interrupted" or "terminated".
void set_last_words(std::string words);

// Says one line on stderr, ends all processes below this one and leaves with 128 + `signal`: at
// once, with nothing closed. The first caller does it, any other waits for the end.
[[noreturn]] void end_now(int signal);

// From now on this signal ends the process at once and without a word; for its last moments, in
// which Python has no handlers any more.
void end_quietly_on_signal(int signal);

}  // namespace pytrace
