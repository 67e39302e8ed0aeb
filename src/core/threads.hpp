// A pool of threads, and interruption of long calls.
//
// `Workers` is the calling thread and, if they are free, the threads of one global pool, which is
// created on first use. Any thread may run any task, so results must not depend on the assignment:
// each task writes to its own memory, and the caller adds up the results in order.
#pragma once

#include <chrono>
#include <cstddef>
#include <type_traits>

namespace drolearn {

class Pool;

class Workers {
  public:
    // Called regularly by the calling thread; returns false to stop.
    using Check = bool (*)();

    // Uses at most `threads` threads, or one if the pool is in use.
    explicit Workers(int threads = 1, Check check = nullptr);
    ~Workers();
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    // Calls body(task) for all tasks; false if interrupted.
    template <class Body>
    bool run(std::size_t tasks, Body&& body) {
        if (!pool_ || tasks < 2) {
            for (std::size_t task = 0; task < tasks; ++task) {
                if (!poll()) return false;
                body(task);
            }
            return true;
        }
        return share(
            tasks,
            [](void* context, std::size_t task) {
                (*static_cast<std::remove_reference_t<Body>*>(context))(task);
            },
            const_cast<void*>(static_cast<const void*>(&body)));
    }

    // Returns false to stop. Reads the clock, and calls the check every 20 ms.
    bool poll() {
        if (!check_ || interrupted_) return !interrupted_;
        const auto now = Clock::now();
        if (now < next_check_) return true;
        interrupted_ = !check_();
        next_check_ = Clock::now() + std::chrono::milliseconds(20);
        return !interrupted_;
    }

  private:
    using Clock = std::chrono::steady_clock;

    bool share(std::size_t tasks, void (*body)(void*, std::size_t), void* context);

    Pool* pool_ = nullptr;  // locked by this object; null with one thread
    int pool_threads_ = 0;
    Check check_ = nullptr;
    Clock::time_point next_check_{};
    bool interrupted_ = false;
};

}  // namespace drolearn
