"""How the page of the statistics looks: light and dark, as the reader's system is."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme:light dark;
  --page:#fbfbfd;
  --card:#fff;
  --text:#1d2330;
  --soft:#5d6677;
  --edge:#dfe3ea;
  --grid:#e8ebf0;
  --limit:#c0392b;
  --s0:#2f6fb2;
  --s1:#e08a1e;
  --s2:#3a9a6b;
  --s3:#b2528f;
  --s4:#7a6bd0;
  --s5:#c9b400;
  --s6:#4fb3c8;
  --s7:#8a8f99;
}
@media(prefers-color-scheme:dark) {
  :root {
    --page:#14171d;
    --card:#1c2029;
    --text:#e4e8ef;
    --soft:#9aa4b5;
    --edge:#303644;
    --grid:#2a303b;
    --limit:#ff7b6b;
    --s0:#6aa9e9;
    --s1:#f0a94c;
    --s2:#62c493;
    --s3:#d884b8;
    --s4:#a79bf0;
    --s5:#ded14a;
    --s6:#7fd3e4;
    --s7:#a5abb6;
  }
}
* {
  box-sizing:border-box;
}
body {
  margin:0;
  background:var(--page);
  color:var(--text);
  font:15px/1.5 system-ui,sans-serif;
}
main {
  max-width:940px;
  margin:0 auto;
  padding:28px 20px 60px;
}
h1 {
  font-size:24px;
  margin:0 0 2px;
}
h2 {
  font-size:18px;
  margin:0 0 10px;
}
p {
  margin:4px 0 10px;
  color:var(--soft);
}
section {
  background:var(--card);
  border:1px solid var(--edge);
  border-radius:8px;
  padding:16px 18px;
  margin:16px 0;
}
.tiles {
  display:grid;
  grid-template-columns:repeat(auto-fit,minmax(150px,1fr));
  gap:10px;
  margin:16px 0;
}
.tile {
  background:var(--card);
  border:1px solid var(--edge);
  border-radius:8px;
  padding:10px 14px;
}
.tile b {
  display:block;
  font-size:20px;
}
.tile span {
  color:var(--soft);
  font-size:13px;
}
svg {
  width:100%;
  height:auto;
  display:block;
  margin:4px 0;
}
.grid {
  stroke:var(--grid);
  stroke-width:1;
}
.limit {
  stroke:var(--limit);
  stroke-width:1.5;
  stroke-dasharray:5 4;
}
.tick {
  fill:var(--soft);
  font-size:12px;
}
.name {
  fill:var(--text);
  font-size:13px;
}
.scroll {
  overflow-x:auto;
}
table {
  border-collapse:collapse;
  width:100%;
  font-size:14px;
}
th,td {
  padding:4px 10px 4px 0;
  text-align:left;
  border-bottom:1px solid var(--edge);
  vertical-align:top;
  overflow-wrap:anywhere;
}
th {
  color:var(--soft);
  font-weight:600;
  overflow-wrap:normal;
}
td.n,th.n {
  text-align:right;
  font-variant-numeric:tabular-nums;
  white-space:nowrap;
}
.key {
  display:inline-block;
  margin:0 14px 4px 0;
  color:var(--soft);
  font-size:13px;
}
.key i {
  display:inline-block;
  width:10px;
  height:10px;
  border-radius:2px;
  margin-right:5px;
}
details summary {
  cursor:pointer;
  color:var(--soft);
  margin:6px 0;
}
footer {
  color:var(--soft);
  font-size:13px;
  margin-top:24px;
}
"""
