// Returns libpcap's own verdicts on packets: the reference of the differential test.
//
// The file named by the argument has a packet on each line: the type that the kernel gives it (0 to 4), 1 if the device
// took a VLAN tag out of it, the tag, 1 if pcap_compile() of a file sees it as it is, and its bytes in hexadecimal. For
// each line on stdin there is one on stdout, of a character for each packet: "0" refused, "1" accepted, "-" not asked.
//
//   p <instructions> <op> <jt> <jf> <k> ...   libpcap's interpreter runs this program
//   e <link type> <expression>                libpcap compiles this for a file and runs it; "E" and why if it cannot
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// In libpcap.a and pcap-int.h, but in no public header.
struct pcap_bpf_aux_data {
	u_short vlan_tag_present;
	u_short vlan_tag;
};
u_int pcap_filter_with_aux_data(const struct bpf_insn *, const u_char *, u_int, u_int, const struct pcap_bpf_aux_data *);

// Loads of metadata that libpcap's interpreter does not have: SKF_AD_OFF + SKF_AD_PKTTYPE, SKF_AD_IFINDEX.
#define LOADS_TYPE 0xfffff004u
#define LOADS_INTERFACE 0xfffff008u
#define INTERFACE 2
#define SNAPLEN 262144

struct packet {
	int type, in_file;
	struct pcap_bpf_aux_data aux;
	u_int len;
	u_char *bytes;
};
static struct packet packets[16384];
static int count;

static void fail(const char *what)
{
	fprintf(stderr, "oracle: %s\n", what);
	exit(1);
}

static void read_packets(const char *name)
{
	static char hex[1 << 17];
	int type, present, tag, in_file;
	FILE *f = fopen(name, "r");

	if (!f)
		fail("open packets");
	while (fscanf(f, "%d %d %d %d %131070s", &type, &present, &tag, &in_file, hex) == 5) {
		struct packet *p = &packets[count++];

		if (count == sizeof(packets) / sizeof(packets[0]))
			fail("too many packets");
		p->type = type;
		p->in_file = in_file;
		p->aux.vlan_tag_present = present;
		p->aux.vlan_tag = tag;
		p->len = strlen(hex) / 2;
		p->bytes = malloc(p->len); // of this size, so that a sanitizer would see what lies beyond
		for (u_int i = 0; i < p->len; i++) {
			unsigned int byte;

			if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
				fail("packet is not hexadecimal");
			p->bytes[i] = byte;
		}
	}
	fclose(f);
}

static char verdict(u_int result)
{
	return result == 0 ? '0' : result == SNAPLEN ? '1' : '?';
}

static void run_program(char *line, char *out)
{
	static struct bpf_insn program[4096], now[4096];
	char *at = line;
	int n = strtol(at, &at, 10);

	for (int i = 0; i < n; i++) {
		program[i].code = strtoul(at, &at, 10);
		program[i].jt = strtoul(at, &at, 10);
		program[i].jf = strtoul(at, &at, 10);
		program[i].k = strtoul(at, &at, 10);
	}
	for (int i = 0; i < count; i++) {
		struct packet *p = &packets[i];

		memcpy(now, program, sizeof(*now) * n);
		for (int j = 0; j < n; j++) {
			if (BPF_CLASS(now[j].code) != BPF_LD || BPF_MODE(now[j].code) != BPF_ABS)
				continue;
			if (now[j].k == LOADS_TYPE)
				now[j] = (struct bpf_insn){ BPF_LD | BPF_IMM, 0, 0, p->type };
			else if (now[j].k == LOADS_INTERFACE)
				now[j] = (struct bpf_insn){ BPF_LD | BPF_IMM, 0, 0, INTERFACE };
		}
		out[i] = verdict(pcap_filter_with_aux_data(now, p->bytes, p->len, p->len, &p->aux));
	}
}

static void run_expression(char *line, char *out)
{
	char *expression;
	int link = strtol(line, &expression, 10);
	pcap_t *file = pcap_open_dead(link, SNAPLEN);
	struct bpf_program program;

	if (!file)
		fail("pcap_open_dead");
	if (pcap_compile(file, &program, expression + 1, 1, PCAP_NETMASK_UNKNOWN)) {
		snprintf(out, 1000, "E %s", pcap_geterr(file));
	} else {
		for (int i = 0; i < count; i++) {
			struct packet *p = &packets[i];
			struct pcap_pkthdr header = { .caplen = p->len, .len = p->len };

			out[i] = p->in_file ? verdict(pcap_offline_filter(&program, &header, p->bytes)) : '-';
		}
		pcap_freecode(&program);
	}
	pcap_close(file);
}

int main(int argc, char **argv)
{
	static char line[1 << 20], out[sizeof(packets) / sizeof(packets[0]) + 1];

	if (argc != 2)
		fail("which packets?");
	read_packets(argv[1]);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		memset(out, 0, sizeof(out));
		if (line[0] == 'p')
			run_program(line + 1, out);
		else
			run_expression(line + 1, out);
		puts(out);
		fflush(stdout);
	}
	return 0;
}
