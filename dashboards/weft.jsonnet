// Weft's dashboard: from what a user feels (jobs) over where it comes from (fabric) and what was done about it
// (decisions) to whether the daemons themselves are well. `jsonnet weft.jsonnet -o weft.json`
local config = import 'config.libsonnet';
local d = import 'lib/dashboard.libsonnet';

local ratio = d.max(1);
// Processes whose launcher gave no job id count as unnamed:...; they are no job.
local job = 'weft_job=~"$weft_job",weft_job!~"unnamed:.*"';
local perSecond(metric, by, selector='') =
  'sum by (%s) (rate(%s{%s}[$__rate_interval]))' % [by, metric, selector];
// Prometheus knows a host by the address that it scrapes; the agent's own word for it is in its build information.
local byHost(rate) =
  'sum by (host) (%s * on (instance) group_left (host) weft_agent_build_info)' % rate;

local jobs = d.row('Jobs', [
  d.timeseries(
    'Iteration time',
    "Measured period of one training iteration, from the bursts of the job's connections, and what the plan promised. A step up without a change of the job is what Weft is there to prevent.",
    's',
    [
      d.query('max by (weft_job) (weft_controller_job_iteration_seconds{%s})' % job, '{{weft_job}}'),
      d.query('max by (weft_job) (weft_controller_job_predicted_iteration_seconds{%s})' % job, '{{weft_job}} planned'),
    ]
  ),
  d.timeseries(
    'Send rate',
    'Payload that the flows of each job send, all hosts together.',
    'Bps',
    [d.query(perSecond('weft_agent_flow_bytes_total', 'weft_job', job + ',direction="send"'), '{{weft_job}}')]
  ),
  d.timeseries(
    'Waiting',
    'Seconds that the flows of a job wait per second, summed over flows: for the peer (the other rank computes or is late) or for the wire (the network is the bottleneck).',
    'short',
    [d.query(perSecond('weft_agent_flow_wait_seconds_total', 'weft_job, side', job), '{{weft_job}} for the {{side}}')]
  ),
]);

local fabric = d.row('Fabric', [
  d.timeseries(
    'Link utilisation',
    "Bits per second of all jobs' flows on each link over its line rate. Two jobs on one link near 100 % collide; an idle link beside it says that the paths are badly chosen.",
    'percentunit',
    [d.query('max by (from, to) (weft_controller_link_utilisation_ratio)', '{{from}} → {{to}}')],
    width=12
  ) + ratio,
  d.timeseries(
    'Available and line rate',
    "What measurement leaves of each link's configured rate. Below the line rate: the cable is slow, or somebody sends whom Weft does not manage.",
    'Bps',
    [
      d.query('min by (from, to) (weft_controller_link_available_bytes_per_second)', '{{from}} → {{to}} available'),
      d.query('max(weft_controller_link_line_rate_bytes_per_second)', 'highest line rate'),
    ],
    width=12
  ),
  d.timeseries(
    'Retransmits',
    'TCP segments that the flows of each job sent again, per second. Loss means full queues or a bad cable.',
    'pps',
    [d.query(perSecond('weft_agent_flow_retransmits_total', 'weft_job', job), '{{weft_job}}')]
  ),
  d.timeseries(
    'Overhead on the wire',
    'IP bytes on the wire per payload byte. Headers cost a few percent; what is more was sent twice.',
    'percentunit',
    [d.query(
      '%s / %s' % [
        perSecond('weft_agent_flow_wire_bytes_total', 'weft_job', job + ',direction="send"'),
        perSecond('weft_agent_flow_bytes_total', 'weft_job', job + ',direction="send"'),
      ],
      '{{weft_job}}'
    )]
  ),
  d.timeseries(
    'Host traffic',
    'Bytes that the data interfaces of each host send, managed or not.',
    'Bps',
    [d.query(byHost('rate(weft_agent_nic_bytes_total{direction="send"}[$__rate_interval])'), '{{host}}')]
  ),
]);

local decisions = d.row('Decisions', [
  d.stat(
    'Mode',
    'Whether the controller enforces its plans (1) or only observes (0).',
    'short',
    [d.query('max(weft_controller_enforcing)', 'enforcing')]
  ) + d.thresholds([[null, 'orange'], [1, 'green']]),
  d.stat(
    'Re-plans',
    'Re-plans since the controller started that moved at least one live connection.',
    'short',
    [d.query('max(weft_controller_replans_total)', 're-plans')]
  ),
  d.timeseries(
    'Policy epoch',
    "Newest epoch in each job's policy segment. It grows with every decision about the job; hosts of one job that differ for long do not hear the controller.",
    'short',
    [
      d.query('max by (weft_job) (weft_agent_policy_epoch{%s})' % job, '{{weft_job}} newest'),
      d.query('min by (weft_job) (weft_agent_policy_epoch{%s})' % job, '{{weft_job}} oldest'),
    ]
  ) + d.decimals(0),
  d.timeseries(
    'Policy apply delay',
    'From the receipt of a policy on the host to its use by all processes of the job, 99th percentile since the agents started. Promised: 0.1 s.',
    's',
    [d.query('histogram_quantile(0.99, sum by (le) (weft_agent_policy_apply_delay_seconds_bucket))', '99 %')]
  ),
  d.timeseries(
    'Decisions',
    'Decisions of each kind per minute: jobs planned, flows placed, flows moved, link estimates changed, mode switched.',
    'short',
    [d.query('sum by (kind) (rate(weft_controller_decisions_total[$__rate_interval])) * 60', '{{kind}}')]
  ),
  d.timeseries(
    'Time to plan flows',
    'Mean time of a planning run of the controller since it started.',
    's',
    [d.query(
      'sum(weft_controller_flow_plan_seconds_sum) / sum(weft_controller_flow_plan_seconds_count)',
      'mean'
    )]
  ),
  d.timeseries(
    'Known paths',
    'Source ports of open flows whose way through the fabric is known. Without paths nothing can be moved.',
    'short',
    [d.query('sum(weft_agent_paths_known)', 'paths')]
  ) + d.decimals(0),
]);

local daemons = d.row('Daemons', [
  d.stat(
    'Hosts connected',
    'Agents whose session with the controller stands.',
    'short',
    [d.query('max(weft_controller_hosts_connected)', 'hosts')]
  ),
  d.stat(
    'Jobs running',
    'Jobs with open flows, as the controller counts them.',
    'short',
    [d.query('sum(weft_controller_jobs{state="running"})', 'running')]
  ),
  d.stat(
    'Open flows',
    'Send flows of all jobs.',
    'short',
    [d.query('max(weft_controller_flows)', 'flows')]
  ),
  d.stat(
    'Agents without controller',
    'Their jobs keep the last policy and train on. More than none for long needs somebody to look.',
    'short',
    [d.query('count(weft_agent_controller_connected) - sum(weft_agent_controller_connected)', 'agents')]
  ) + d.thresholds([[null, 'green'], [1, 'red']]),
  d.timeseries(
    'Samples',
    'Samples that the controller takes from the agents, per second, and those that the agents had to merge because it was slow.',
    'cps',
    [
      d.query('sum(rate(weft_controller_samples_total[$__rate_interval]))', 'taken'),
      d.query('sum(rate(weft_agent_samples_merged_total[$__rate_interval]))', 'merged'),
    ]
  ),
  d.timeseries(
    'Collector duration',
    'Time that each collector of the agents took last, slowest host.',
    's',
    [d.query('max by (collector) (weft_agent_collector_duration_seconds)', '{{collector}}')]
  ),
  d.timeseries(
    'Collectors that failed',
    'Hosts on which a collector did not work last.',
    'short',
    [d.query('sum by (collector) (1 - weft_agent_collector_success)', '{{collector}}')]
  ) + d.decimals(0),
  d.timeseries(
    'Refused and failed',
    "Peers turned away at the agents' sockets, slots of telemetry that held nonsense, policies out of date or out of range, and what the controller ignored, cut off or could not write. All should stay flat.",
    'short',
    [
      d.query('sum(weft_agent_segments_rejected_total)', 'peers'),
      d.query('sum(weft_agent_slots_invalid_total)', 'slots'),
      d.query('sum(weft_agent_policies_refused_total)', 'policies'),
      d.query('sum(weft_controller_ignored_total)', 'reports to the controller'),
      d.query('sum(weft_controller_sessions_closed_total)', 'sessions ended by the controller'),
      d.query('sum(weft_controller_journal_errors_total)', 'journal writes'),
    ]
  ),
  d.timeseries(
    'Probes',
    'Path probes that the agents sent and that were answered, per second. Probing rests when nothing changes.',
    'cps',
    [
      d.query('sum(rate(weft_agent_probes_sent_total[$__rate_interval]))', 'sent'),
      d.query('sum(rate(weft_agent_probes_answered_total[$__rate_interval]))', 'answered'),
    ]
  ),
]);

d.dashboard(
  config,
  'Training jobs and the fabric under them, as the Weft controller and its agents see them.',
  [d.labelVariable('weft_job', 'weft_job', 'weft_agent_flow_bytes_total', 'Job')],
  [jobs, fabric, decisions, daemons],
  [{
    name: 'Re-plans',
    expr: 'sum(changes(weft_controller_replans_total[$__rate_interval])) > 0',
    title: 'Flows were moved',
    color: 'blue',
  }],
)
