// The few pieces of Grafana's dashboard model that Weft uses. Panels flow from left to right in their row; ids and
// positions are derived from the order, so that a diff of the generated JSON shows what changed and nothing else.
local datasource = { type: 'prometheus', uid: '$datasource' };
local columns = 24;

{
  // One query. `legend` is Grafana's format, e.g. '{{host}}'.
  query(expr, legend):: { datasource: datasource, expr: expr, legendFormat: legend },

  local panel(type, title, description, unit, queries, width, height) = {
    type: type,
    title: title,
    description: description,
    datasource: datasource,
    targets: [
      queries[i] { refId: std.char(std.codepoint('A') + i), editorMode: 'code', range: true }
      for i in std.range(0, std.length(queries) - 1)
    ],
    fieldConfig: { defaults: { unit: unit, min: 0, custom: {} }, overrides: [] },
    options: {},
    size:: { w: width, h: height },
  },

  // Curves over time.
  timeseries(title, description, unit, queries, width=8, height=8):: panel('timeseries', title, description, unit, queries, width, height) {
    fieldConfig+: { defaults+: { custom+: { lineWidth: 1, fillOpacity: 10, showPoints: 'never', spanNulls: false } } },
    options: {
      legend: { displayMode: 'table', placement: 'bottom', calcs: ['lastNotNull', 'max'], showLegend: true },
      tooltip: { mode: 'multi', sort: 'desc' },
    },
  },

  // One number each.
  stat(title, description, unit, queries, width=4, height=4):: panel('stat', title, description, unit, queries, width, height) {
    options: {
      reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
      colorMode: 'value',
      graphMode: 'area',
      textMode: 'auto',
      justifyMode: 'auto',
    },
  },

  // Colours from a value on: steps is an array of [value, colour], the first value null.
  thresholds(steps):: {
    fieldConfig+: { defaults+: {
      color: { mode: 'thresholds' },
      thresholds: { mode: 'absolute', steps: [{ value: step[0], color: step[1] } for step in steps] },
    } },
  },

  // The top of the scale, for ratios.
  max(value):: { fieldConfig+: { defaults+: { max: value } } },

  decimals(count):: { fieldConfig+: { defaults+: { decimals: count } } },

  row(title, panels):: { title: title, panels: panels },

  // Template variable with the values of a label.
  labelVariable(name, label, metric, labelText):: {
    name: name,
    label: labelText,
    type: 'query',
    datasource: datasource,
    query: { query: 'label_values(%s, %s)' % [metric, label], refId: 'variable-' + name },
    definition: 'label_values(%s, %s)' % [metric, label],
    refresh: 2,
    sort: 3,
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { selected: true, text: ['All'], value: ['$__all'] },
    hide: 0,
    options: [],
    regex: '',
    skipUrlSync: false,
  },

  // Puts the panels of one row side by side from `top` on; breaks the line where the width is used up.
  local placed(panels, top) = std.foldl(
    function(state, panel)
      local fits = state.x + panel.size.w <= columns;
      local x = if fits then state.x else 0;
      local y = if fits then state.y else state.y + state.height;
      {
        x: x + panel.size.w,
        y: y,
        height: if fits then std.max(state.height, panel.size.h) else panel.size.h,
        panels: state.panels + [panel { gridPos: { x: x, y: y, w: panel.size.w, h: panel.size.h } }],
      },
    panels,
    { x: 0, y: top, height: 0, panels: [] }
  ),

  local laidOut(rows) = std.foldl(
    function(state, row)
      local inside = placed(row.panels, state.y + 1);
      {
        y: inside.y + inside.height,
        panels: state.panels
                + [{ type: 'row', title: row.title, collapsed: false, panels: [], gridPos: { x: 0, y: state.y, w: columns, h: 1 } }]
                + inside.panels,
      },
    rows,
    { y: 0, panels: [] }
  ).panels,

  dashboard(config, description, variables, rows, annotations):: {
    local panels = laidOut(rows),
    uid: config.uid,
    title: config.title,
    description: description,
    tags: config.tags,
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    timezone: 'browser',
    refresh: config.refresh,
    time: { from: config.from, to: 'now' },
    templating: {
      list: [{
        name: 'datasource',
        label: 'Data source',
        type: 'datasource',
        query: 'prometheus',
        current: { selected: true, text: config.datasource, value: config.datasource },
        hide: 0,
        includeAll: false,
        multi: false,
        options: [],
        refresh: 1,
        regex: '',
        skipUrlSync: false,
      }] + variables,
    },
    annotations: {
      list: [
        {
          name: annotation.name,
          datasource: datasource,
          enable: true,
          expr: annotation.expr,
          titleFormat: annotation.title,
          iconColor: annotation.color,
          step: '5s',
        }
        for annotation in annotations
      ],
    },
    links: [],
    panels: [panels[i] { id: i + 1 } for i in std.range(0, std.length(panels) - 1)],
  },
}
