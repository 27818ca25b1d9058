/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Signals and OOM kills, a part of trace.bpf.c.
 *
 * sonde_signal   tp_btf/signal_generate, Linux 5.12: a signal to a process of the Pod, with its sender and its result.
 * sonde_oom      tp_btf/mark_victim, where it has the victim's task (Linux 6.8, and stable versions of older kernels).
 * sonde_oom_pid  tp_btf/mark_victim, Linux 5.12, where it has the victim's number only: the victim is the process that was
 *                sent SIGKILL just before on the same CPU, without preemption between both.
 *
 * Input: the constants of trace.bpf.c. Output: records in rare, because these events may come in interrupts. Lost: counted
 * in rare_lost. Tests: agents/trace, signal_test.go.
 */

/* In place of a pointer to a siginfo: zero is a signal of the running process, this one of the kernel. */
#define SEND_SIG_PRIV 1

#define SI_KERNEL 0x80
#define SIGKILL 9
#define MM_ANONPAGES 1

/* The start of a siginfo, which is the kernel's ABI. */
struct info_head {
	int signo;
	int error;
	int code;
	int spare;
	__u64 address;	/* of the fault that caused the signal */
};

struct rare_signal {
	struct record r;
	__u64 numbers[MAX_NUMBERS];
	char sender[16];
};

struct rare_oom {
	struct record r;
	__u64 total;	/* pages */
	__u64 anon;
};

struct victim {
	__u32 pid;	/* in the first PID namespace */
	__u32 spare;
	struct rare_oom oom;
};

/* Whether sonde_oom_pid is attached. */
volatile const bool oom_by_pid = false;

/* The process that the kernel sent SIGKILL to last on this CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct victim);
} last_victim SEC(".maps");

static __always_inline __u64 anon_pages(struct mm_struct *mm)
{
	if (bpf_core_type_exists(struct mm_rss_stat)) {
		struct mm_struct___stat *old = (void *)mm;

		return BPF_CORE_READ(old, rss_stat.count[MM_ANONPAGES].counter);
	}
	return BPF_CORE_READ(mm, rss_stat[MM_ANONPAGES].count);
}

static __always_inline void fill_oom(struct rare_oom *o, struct task_struct *t, struct cgroup *g)
{
	struct mm_struct *mm = t->mm;

	init_record(&o->r, t, g, KIND_OOM);
	o->total = BPF_CORE_READ(mm, total_vm);
	o->anon = anon_pages(mm);
	o->r.numbers = 2;
	o->r.size = sizeof(*o);
}

SEC("tp_btf/signal_generate")
int BPF_PROG(sonde_signal, int sig, void *unused, struct task_struct *t, int group, int result)
{
	struct task_struct *sender = bpf_get_current_task_btf();
	struct cgroup *g = cgroup_of(t);
	struct info_head info = {};
	struct rare_signal *s;
	struct victim *v;
	__u64 from = 0;
	__u32 zero = 0;

	if (!in_pod(g) || !is_wanted(t, g))
		return 0;
	/* The kernel's type is a pointer, but the value may be SEND_SIG_PRIV: read it as a number. */
	bpf_probe_read_kernel(&from, sizeof(from), &ctx[1]);
	if (from > SEND_SIG_PRIV)
		bpf_probe_read_kernel(&info, sizeof(info), (void *)from);
	else if (from)
		info.code = SI_KERNEL;
	if (oom_by_pid && sig == SIGKILL && from == SEND_SIG_PRIV) {
		v = bpf_map_lookup_elem(&last_victim, &zero);
		if (v) {
			v->pid = t->pid;
			fill_oom(&v->oom, t, g);
		}
	}
	s = reserve_rare(sizeof(*s), KIND_SIGNAL);
	if (!s)
		return 0;
	init_record(&s->r, t, g, KIND_SIGNAL);
	s->numbers[0] = sig;
	s->numbers[1] = (__s64)info.code;
	s->numbers[2] = result;
	s->numbers[3] = group;
	s->numbers[4] = node_pid(sender->group_leader);
	s->numbers[5] = info.address;
	bpf_probe_read_kernel(s->sender, sizeof(s->sender), sender->comm);
	s->r.numbers = MAX_NUMBERS;
	s->r.first = sizeof(s->sender);
	s->r.size = sizeof(*s);
	bpf_ringbuf_submit(s, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/mark_victim")
int BPF_PROG(sonde_oom, struct task_struct *t)
{
	struct cgroup *g = cgroup_of(t);
	struct rare_oom *o;

	if (!in_pod(g) || !is_wanted(t, g))
		return 0;
	o = reserve_rare(sizeof(*o), KIND_OOM);
	if (!o)
		return 0;
	fill_oom(o, t, g);
	bpf_ringbuf_submit(o, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/mark_victim")
int BPF_PROG(sonde_oom_pid, int pid)
{
	struct rare_oom *o;
	struct victim *v;
	__u32 zero = 0;

	v = bpf_map_lookup_elem(&last_victim, &zero);
	if (!v || !pid || v->pid != pid)
		return 0;
	v->pid = 0;
	o = reserve_rare(sizeof(*o), KIND_OOM);
	if (!o)
		return 0;
	__builtin_memcpy(o, &v->oom, sizeof(*o));
	bpf_ringbuf_submit(o, BPF_RB_NO_WAKEUP);
	return 0;
}
