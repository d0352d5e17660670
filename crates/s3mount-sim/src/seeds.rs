//! Many runs, and how a failing one is cut down.

use crate::programs::Act;
use crate::promise::Rule;
use crate::run::run;
use crate::scenario::Scenario;
use crate::store::Faults;

/// Which promise a scenario breaks, if it breaks one.
fn rule(scenario: &Scenario) -> Option<Rule> {
    run(scenario, false).broken.map(|broken| broken.rule)
}

/// The most runs by which a scenario is cut down.
const MOST_RUNS: usize = 3_000;

struct Cut {
    best: Scenario,
    rule: Rule,
    left: usize,
}

impl Cut {
    /// Takes the smaller scenario if it breaks the same promise, with its own orders or with others.
    fn tries(&mut self, smaller: &Scenario) -> bool {
        if *smaller == self.best {
            return false;
        }
        for other in 0..4 {
            let Some(left) = self.left.checked_sub(1) else { return false };
            self.left = left;
            let tried = Scenario { seed: smaller.seed ^ (other << 50), ..smaller.clone() };
            if rule(&tried) == Some(self.rule) {
                self.best = tried;
                return true;
            }
        }
        false
    }

    fn without_programs(&mut self) {
        let mut at = 0;
        while at < self.best.programs.len() {
            let mut smaller = self.best.clone();
            smaller.programs.remove(at);
            if !self.tries(&smaller) {
                at += 1;
            }
        }
    }

    fn without_acts(&mut self) {
        for program in 0..self.best.programs.len() {
            let mut len = self.best.programs[program].acts.len().div_ceil(2);
            while len > 0 {
                let mut at = 0;
                while at < self.best.programs[program].acts.len() {
                    let mut smaller = self.best.clone();
                    let acts = &mut smaller.programs[program].acts;
                    acts.drain(at..(at + len).min(acts.len()));
                    if !self.tries(&smaller) {
                        at += len;
                    }
                }
                len /= 2;
            }
        }
    }

    fn with_smaller_acts(&mut self) {
        for program in 0..self.best.programs.len() {
            for at in 0..self.best.programs[program].acts.len() {
                let mut smaller = self.best.clone();
                match &mut smaller.programs[program].acts[at].1 {
                    Act::Write(_, place, cells) | Act::Map(_, place, cells) => {
                        (*place, *cells) = (*place / 8, (*cells).min(2));
                    }
                    Act::Put(_, cells) | Act::Cut(_, cells) => *cells = (*cells).min(2),
                    Act::Pause(milliseconds) => *milliseconds /= 4,
                    Act::TakeOver(requests, milliseconds) => {
                        (*requests, *milliseconds) = (*requests / 2, *milliseconds / 4);
                    }
                    _ => continue,
                }
                self.tries(&smaller);
            }
        }
    }

    fn without_faults(&mut self) {
        let faults = self.best.faults;
        let mut tried = vec![Faults { most: 0, ..faults }];
        tried.push(Faults { most: 1, ..faults });
        tried.push(Faults { slow: 0, truncated: 0, ..faults });
        tried.push(Faults { slow_lists: 0, ..faults });
        tried.push(Faults { lost: 0, late: 0, ..faults });
        tried.push(Faults { refused: 0, failed: 0, ..faults });
        for faults in tried {
            let smaller = Scenario { faults, ..self.best.clone() };
            self.tries(&smaller);
        }
        for at in (0..self.best.objects.len()).rev() {
            let mut smaller = self.best.clone();
            smaller.objects.remove(at);
            self.tries(&smaller);
        }
    }
}

/// The fewest programs and calls that break the promise which a scenario breaks.
pub fn cut_down(scenario: &Scenario) -> Scenario {
    let Some(rule) = rule(scenario) else { return scenario.clone() };
    let mut cut = Cut { best: scenario.clone(), rule, left: MOST_RUNS };
    loop {
        let before = cut.best.clone();
        cut.without_programs();
        cut.without_acts();
        cut.without_faults();
        cut.with_smaller_acts();
        if cut.best == before || cut.left == 0 {
            return cut.best;
        }
    }
}
